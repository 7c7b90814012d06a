"""A real daemon with real agents and workers on one machine: what the launchers' contract does not tell.

Nodes that join, leave and die, workers that are killed, and what happens while there is no daemon are
stories of `bftrainer.testing.launcher`, which tests/contract tells with the same daemon and the same audit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bftrainer import worker_output
from tests.support.audit import audit
from tests.support.disturb import cancel
from tests.support.processes import daemon_that_ends, read
from tests.support.site import SCRIPTS, Site, always, running, running_at_will
from tests.support.waiting import LONG_S

SAMPLES = 8_000


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    """One for most tests: what its warm processes have imported serves them all."""
    with running(always("n1", "n2")) as site:
        yield site


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    """What a test that failed has left running, or has stopped, is no other test's."""
    yield shared
    if shared.daemon is None or shared.daemon.poll() is not None:
        shared.start()
    cancel(shared, *(trainer["name"] for trainer in shared.get("trainers")))
    shared.until(lambda: not shared.workers(), LONG_S, "no worker is left")


def count(site: Site, name: str = "count", *, delay_s: float = 0.08, **more: Any) -> Path:
    """Submit the trainer that writes down what it uses; it is fast once the file `fast` is in its notes."""
    notes = site.root / name
    notes.mkdir()
    site.submit(
        name,
        "count.py",
        str(notes),
        str(delay_s),
        **{"samples": SAMPLES, "checkpoint": {"every_s": 0.5}, **more},
    )
    return notes


def finish(notes: Path) -> None:
    """Let the steps of a trainer take no longer than they must: a test has seen what it wanted."""
    (notes / "fast").touch()


def pauses(site: Site, name: str) -> list[dict[str, Any]]:
    """All pauses of a trainer."""
    found: list[dict[str, Any]] = site.get("pauses", limit=1000, trainer=name)
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.nightly  # the contract tells it, too
def test_goes_on_from_the_checkpoint_when_all_workers_are_killed_at_once(site: Site) -> None:
    notes = count(site, "all-lost")
    site.until_members("all-lost", "n1", "n2")
    folder = Path(site.trainer("all-lost")["checkpoint_dir"])
    site.until(lambda: list(folder.glob("*.pt")), LONG_S, "a checkpoint")
    for pid in site.workers():
        kill(pid)
    finish(notes)
    ended = site.until_ended("all-lost")
    assert (ended["status"], ended["samples"]) == ("completed", SAMPLES)
    assert any(p["kind"] == "restart" and p["step"] > 0 for p in pauses(site, "all-lost"))
    audit(notes, SAMPLES)


def test_a_killed_daemon_takes_its_running_workers_over(site: Site) -> None:
    notes = count(site, "taken-over")
    site.until_members("taken-over", "n1", "n2")
    before = sorted(site.workers())
    step = site.trainer("taken-over")["step"]
    site.kill_daemon()
    assert sorted(site.workers()) == before, "workers train on without a daemon"
    site.start()
    site.until_members("taken-over", "n1", "n2")
    assert sorted(site.workers()) == before, "the same processes, none started twice"
    assert site.trainer("taken-over")["step"] >= step
    finish(notes)
    ended = site.until_ended("taken-over")
    assert ended["samples"] == SAMPLES
    assert not any(p["kind"] == "restart" and p["step"] > 0 for p in pauses(site, "taken-over"))
    audit(notes, SAMPLES)


def test_work_that_ends_while_there_is_no_daemon_is_not_done_again(site: Site) -> None:
    notes = count(site, "unseen", samples=4_000)
    site.until_members("unseen", "n1", "n2")
    before = len(site.workers())
    site.kill_daemon()
    finish(notes)
    site.until(lambda: not site.workers(), LONG_S, "the workers are done")
    site.start()
    ended = site.until_ended("unseen")
    assert (ended["status"], ended["samples"]) == ("completed", 4_000)
    assert len(list(notes.glob("*.jsonl"))) == before, "no worker was started again"
    audit(notes, 4_000)


def test_cancel_writes_a_checkpoint_and_leaves_no_worker(site: Site) -> None:
    count(site, "cancelled", checkpoint={"every_s": 3600})
    site.until(lambda: site.trainer("cancelled")["samples"] > 0, LONG_S, "progress")
    words = ("cancel", "cancelled", "--json", "--state-dir", str(site.state))
    command = [sys.executable, "-m", "bftrainer", *words]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (found["status"], found["workers"]) == ("cancelled", {})
    assert site.workers() == []
    (checkpoint,) = Path(found["checkpoint_dir"]).glob("*.pt")
    saved = torch.load(checkpoint, weights_only=True)
    assert saved["position"]["samples"] == found["samples"] > 0
    compared = {"data set", "settings of the run", "end by the script"}
    modes = {"trainable parameters", "layers in evaluation mode", "buffers that are not saved"}
    assert set(saved["parts"]) == {"model", "optimizer", "pace"} | modes | compared
    assert site.trainer("cancelled")["ended_at"]


def test_a_stopped_daemon_leaves_nothing_and_the_next_goes_on(site: Site) -> None:
    notes = count(site, "stopped", checkpoint={"every_s": 3600})
    site.until(lambda: site.trainer("stopped")["samples"] > 0, LONG_S, "progress")
    site.stop()
    assert site.processes() == []
    site.start()
    reached = site.trainer("stopped")["samples"]
    assert reached > 0
    finish(notes)
    assert site.until_ended("stopped")["samples"] == SAMPLES
    (restart,) = {p["step"] for p in pauses(site, "stopped") if p["kind"] == "restart" and p["step"]}
    assert restart > 0
    assert all(p["lost_steps"] == 0 for p in pauses(site, "stopped"))
    audit(notes, SAMPLES)


def test_too_few_survivors_wait_for_company() -> None:
    with running_at_will("n1", "n2", "n3") as site:
        notes = count(site, delay_s=0.4, n_min=2, n_max=2, samples=5_000)
        site.change(give=["n1", "n2"])
        site.until_members("count", "n1", "n2")
        site.change(take=["n2"])
        site.until(lambda: not site.trainer("count")["members"], LONG_S, "n1 alone is no member")
        site.change(give=["n3"])
        site.until_members("count", "n1", "n3")
        finish(notes)
        assert site.until_ended("count")["samples"] == 5_000
        audit(notes, 5_000)
        sizes = {p["size"] for p in site.get("pauses", limit=1000)}
        assert sizes == {2}


def sizes_noted(notes: Path) -> set[int]:
    """With how many members steps were taken."""
    lines = [line for path in notes.glob("*.jsonl") for line in path.read_text().splitlines()]
    return {json.loads(line)["size"] for line in lines if line.endswith("}")}


def test_workers_never_train_together_on_a_size_that_is_not_allowed() -> None:
    """Of three workers one is killed: two wait for it. Later a node is taken: one goes on."""
    with running_at_will("a", "b", "c") as site:
        notes = count(site, delay_s=0.2, nodes={"sizes": [1, 3]}, curve=[[3, 3000.0]])
        site.change(give="ab")
        site.until(lambda: site.trainer("count")["step"] > 0, LONG_S, "it trains on one of two nodes")
        assert len(site.trainer("count")["members"]) == 1
        site.change(give="c")
        site.until_members("count", "a", "b", "c")
        site.until(lambda: 3 in sizes_noted(notes), LONG_S, "three have taken a step together")
        kill(site.worker_on("b"))
        site.until(lambda: len(site.trainer("count")["members"]) == 2, LONG_S, "the loss is known")
        site.until_members("count", "a", "b", "c")
        site.change(take="c")
        site.until(lambda: len(site.trainer("count")["members"]) == 1, LONG_S, "it goes down to one")
        finish(notes)
        assert site.until_ended("count")["samples"] == SAMPLES
        audit(notes, SAMPLES)
        pauses = site.get("pauses", limit=1000)
        assert {p["size"] for p in pauses} == {1, 3}
        assert not [p for p in pauses if p["kind"] == "restart" and p["step"]], "survivors keep the state"
        assert sizes_noted(notes) == {1, 3}


def test_a_program_that_fails_is_given_up_with_its_reason(site: Site) -> None:
    site.submit("wrong", "fail.py", n_max=1)
    ended = site.until_ended("wrong")
    assert ended["status"] == "failed"
    assert ended["reason"].startswith("exit code 1: ZeroDivisionError: ")
    assert f"; see bftrainer logs {ended['id']} --node n" in ended["reason"]
    printed = worker_output.last_lines(Path(ended["log_dir"]), 20, of=os.geteuid())
    assert any("ZeroDivisionError" in part.text for part in printed.values())
    site.submit("wrong", "stop_early.py", n_max=1)  # its name is free again
    assert site.until_ended("wrong")["status"] == "completed"


def test_a_command_that_does_not_exist_says_so(site: Site) -> None:
    spec = {"name": "none", "command": ["no-such-program"], "nodes": {"max": 1}}
    site.client.call("POST", "trainers", body={"spec": json.dumps(spec), "name": "none", "base": "/"})
    ended = site.until_ended("none")
    assert ended["status"] == "failed" and "no-such-program" in ended["reason"]


def test_agents_without_a_daemon_let_workers_checkpoint_and_go() -> None:
    with running(always("n1"), orphan_s=3) as site:
        count(site, n_max=1, checkpoint={"every_s": 3600})
        site.until(lambda: site.trainer("count")["samples"] > 0, LONG_S, "progress")
        folder = Path(site.trainer("count")["checkpoint_dir"])
        site.kill_daemon()
        site.until(lambda: not site.processes(), LONG_S, "no process is left")
        assert list(folder.glob("*.pt"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system to fill")
def test_a_full_disk_stops_no_trainer_and_nothing_is_forgotten() -> None:
    with running(always("n1", "n2"), min_free_mb=0) as site:
        site.stop()
        small = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(site.state)]
        if subprocess.run(small, check=False).returncode != 0:
            pytest.skip("this machine does not let us mount a file system")
        try:
            site.start()
            checkpoints = str(site.root / "elsewhere")
            notes = count(site, delay_s=1.0, checkpoint={"dir": checkpoints, "every_s": 1.0}, n_max=2)
            site.until(lambda: site.trainer("count")["samples"] > 0, LONG_S, "progress")
            ballast = site.state / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb") as file:
                while True:
                    file.write(b"x" * 4096)
                    file.flush()
            site.until(lambda: site.get("status")["state"] == "degraded", LONG_S, "the daemon says so")
            site.until(
                lambda: "full" in "".join(site.get("status")["problems"]), LONG_S, "the daemon says why"
            )
            site.kill_daemon()
            site.start()  # which does not need room either
            with pytest.raises(Exception, match="full"):
                site.submit("refused", "count.py", ".")
            kill(site.workers()[0])
            finish(notes)
            site.until_ended_in_memory("count")
            ballast.unlink()
            site.until(lambda: site.get("status")["state"] == "ok", LONG_S, "all is well again")
            assert site.until_ended("count")["samples"] == SAMPLES
            kinds = [e["kind"] for e in site.get("events", limit=1000)]
            assert "WorkerLost" in kinds and "TrainerEnded" in kinds, "what happened meanwhile is written now"
            site.stop()
        finally:
            subprocess.run(["umount", "--lazy", str(site.state)], check=True)


def test_a_second_daemon_is_refused(site: Site) -> None:
    done = daemon_that_ends(site.state, LONG_S)
    assert done.returncode == 1
    assert f"pid {site.daemon and site.daemon.pid}" in done.stderr
    assert site.get("status")["state"] == "ok"


def test_the_daemon_imports_no_torch_and_is_small(site: Site) -> None:
    assert site.daemon is not None
    pid = site.daemon.pid
    site.until(lambda: b"highspy" in read(pid, "maps"), LONG_S, "it has tried its solver")
    assert b"torch" not in read(pid, "maps")
    rss = next(line for line in read(pid, "status").splitlines() if b"VmRSS" in line)
    assert int(rss.split()[1]) < 200_000


def test_state_of_every_kind_is_handed_over_and_saved(site: Site) -> None:
    site.submit("odd", "odd.py", samples=3_000, n_min=2, n_max=2)
    ended = site.until_ended("odd")
    assert ended["status"] == "completed"
    newest = max(Path(ended["checkpoint_dir"]).glob("*.pt"))
    saved = torch.load(newest, weights_only=True)
    assert saved["position"]["samples"] == 3_000
    assert saved["parts"]["model"]["truth"].item() is True


def test_a_daemon_that_stood_still_finds_its_workers_again(site: Site) -> None:
    notes = count(site, "stood-still", delay_s=0.4, samples=16_000)  # more than a minute
    site.until_members("stood-still", "n1", "n2")
    before = sorted(site.workers())
    known = site.get("events", limit=1)[0]["id"]
    assert site.daemon is not None
    site.daemon.send_signal(signal.SIGSTOP)
    time.sleep(18)  # longer than agents wait for an answer before they connect anew
    site.daemon.send_signal(signal.SIGCONT)
    site.until(
        lambda: sum(n["pilot"] == "up" for n in site.get("pool")["nodes"]) == 2, LONG_S, "all agents are back"
    )
    finish(notes)
    ended = site.until_ended("stood-still")
    assert (ended["status"], ended["samples"]) == ("completed", 16_000)
    assert not [
        e
        for e in site.get("events", limit=1000)
        if e["id"] > known and e["kind"] == "NodesChanged" and e["data"]["left"]
    ]
    assert len(list(notes.glob("*.jsonl"))) == len(before), "no worker was started again"
    audit(notes, 16_000)


def test_by_hand_the_script_is_an_ordinary_one(tmp_path: Path) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("BFTRAINER_") or "SITE" in k}
    command = [sys.executable, str(SCRIPTS / "count.py"), str(tmp_path), "0"]
    subprocess.run(command, check=True, env=environ, timeout=LONG_S)
    audit(tmp_path, 5_000)
