"""Horovod trainers with real workers: every sample counts once, whatever happens to the nodes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit import audit
from testbed import Site, always, running

pytest.importorskip("horovod", reason="Horovod is not installed; run make horovod")

SAMPLES = 30_000


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


@pytest.fixture
def site() -> Iterator[Site]:
    with running(always("n1", "n2", "n3")) as site:
        yield site


def submit(site: Site, notes: Path, *, delay_s: float = 0.01, **more: object) -> None:
    site.submit(
        "t",
        "count_horovod.py",
        str(notes),
        str(delay_s),
        samples=SAMPLES,
        launcher="horovod",
        n_max=3,
        **{"checkpoint": {"every_s": 1}, **more},
    )


def ends_well(site: Site, notes: Path) -> None:
    """The work is done once, and nothing of the trainer is left."""
    trainer = site.until_ended("t", 240)
    assert (trainer["status"], trainer["samples"]) == ("completed", SAMPLES), site.story()
    audit(notes, SAMPLES)
    site.until(lambda: not site.workers() and not drivers(site), 20, "no worker and no driver")


def drivers(site: Site) -> list[int]:
    return [pid for pid in site.processes() if b"horovod_driver" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_trains_to_its_end(site: Site, notes: Path) -> None:
    submit(site, notes)
    site.until_members("t", "n1", "n2", "n3")
    ends_well(site, notes)


def test_joins_pause_members_briefly_and_are_recorded(notes: Path) -> None:
    with running([*always("n1"), (15.0, 1e6, "n2"), (15.0, 1e6, "n3")]) as site:
        submit(site, notes)
        site.until_members("t", "n1")
        site.until_members("t", "n1", "n2", "n3")
        ends_well(site, notes)
        pauses = [(p["kind"], p["size"], p["pause_s"]) for p in site.get("pauses")]
        assert ("restart", 1) in [(kind, size) for kind, size, _ in pauses]
        assert {size for kind, size, _ in pauses if kind == "join"} & {2, 3}
        print(pauses)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_killed_worker_is_missed_by_nobody(site: Site, notes: Path, rank: int) -> None:
    submit(site, notes)
    site.until_members("t", "n1", "n2", "n3")
    victim = site.trainer("t")["members"][rank]
    step = site.trainer("t")["step"]
    os.kill(site.worker_on(victim), signal.SIGKILL)
    site.until(lambda: site.trainer("t")["step"] > step, 60, "training goes on")
    ends_well(site, notes)


def test_a_node_that_dies_and_one_that_hangs(site: Site, notes: Path) -> None:
    submit(site, notes)
    site.until_members("t", "n1", "n2", "n3")
    os.kill(site.agent_on("n2"), signal.SIGKILL)
    site.until_members("t", "n1", "n2", "n3")
    os.kill(site.worker_on("n3"), signal.SIGSTOP)
    site.until(lambda: "n3" not in site.trainer("t")["members"], 30, "n3 is given up")
    ends_well(site, notes)


def test_all_nodes_at_once(site: Site, notes: Path) -> None:
    submit(site, notes)
    site.until_members("t", "n1", "n2", "n3")
    site.until(lambda: site.trainer("t")["samples"] > 2_000, 60, "there is something to lose")
    for node in ("n1", "n2", "n3"):
        os.kill(site.agent_on(node), signal.SIGKILL)
    ends_well(site, notes)


def test_leaves_with_notice_shrinks_to_nothing_and_returns_elsewhere(notes: Path) -> None:
    intervals = [(0.0, 25.0, "n1"), (0.0, 32.0, "n2"), (40.0, 1e6, "n3"), (50.0, 1e6, "n4")]
    with running(intervals) as site:
        submit(site, notes)
        site.until_members("t", "n1", "n2")
        site.until(lambda: not site.trainer("t")["members"], 60, "no node is left")
        before = site.trainer("t")["samples"]
        site.until_members("t", "n3")
        assert site.trainer("t")["samples"] >= before > 0
        ends_well(site, notes)
        assert not [p for p in site.get("pauses") if p["lost_steps"]]


def test_the_daemon_is_killed_and_restarted_while_a_worker_joins(notes: Path) -> None:
    with running([*always("n1", "n2"), (20.0, 1e6, "n3")]) as site:
        submit(site, notes)
        site.until_members("t", "n1", "n2")
        (driver,) = drivers(site)
        site.until(lambda: "n3" in site.trainer("t")["nodes"], 60, "n3 is given to it")
        site.kill_daemon()
        site.start()
        site.until_members("t", "n1", "n2", "n3")
        assert drivers(site) == [driver]
        ends_well(site, notes)


def test_a_killed_driver_costs_no_samples(site: Site, notes: Path) -> None:
    submit(site, notes)
    site.until_members("t", "n1", "n2", "n3")
    os.kill(drivers(site)[0], signal.SIGKILL)
    ends_well(site, notes)
