"""How trainers end, live: by an error, while nodes leave, and not before the last line of their script."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.site import SCRIPTS, Site, running_at_will
from tests.support.waiting import LONG_S

SAMPLES = 400


@pytest.fixture
def site() -> Iterator[Site]:
    with running_at_will("a", "b") as site:
        site.change(give="ab")
        yield site


def submit(
    site: Site, *hold: str, fails_at: int = 0, stops_at: int = 0, samples: int | None = SAMPLES
) -> Path:
    """A trainer on a and b; those of `hold` wait after the loop."""
    notes = site.root / "notes"
    notes.mkdir()
    for node in hold:
        (notes / f"hold@{node}").touch()
    site.submit("t", "ending.py", str(notes), str(fails_at), str(stops_at), samples=samples, n_min=2, n_max=2)
    return notes


def noted(site: Site, notes: Path, moment: str, node: str, times: int = 1) -> None:
    """Wait until so many workers of a node have come to a moment."""
    site.until(
        lambda: len(list(notes.glob(f"{moment}@{node}.*"))) == times, LONG_S, f"{moment} on {node}, {times}"
    )


def test_an_error_in_the_loop_is_no_end_of_the_work(site: Site) -> None:
    submit(site, fails_at=10, samples=None)
    ended = site.until_ended("t")
    assert ended["status"] == "failed" and "exit code 1" in ended["reason"]
    losses = [row for row in site.get("events", limit=1000) if row["kind"] == "WorkerLost"]
    told = {row["data"]["samples"] for row in losses} - {0.0}  # a peer's end may come before a first report
    assert len(told) == 1, "all at the same place, exactly"


def test_what_comes_after_the_loop_is_repeated_if_its_node_is_taken(site: Site) -> None:
    notes = submit(site, "a", "b")
    noted(site, notes, "after", "a")
    noted(site, notes, "after", "b")
    first = site.trainer("t")["members"][0]
    site.change(take=first)
    site.until(lambda: first not in site.trainer("t")["workers"], LONG_S, "rank 0 is gone")
    site.change(give=first)
    noted(site, notes, "after", "a", 2)
    noted(site, notes, "after", "b", 2)
    view = site.trainer("t")
    assert (view["status"], view["samples"]) == ("running", SAMPLES), "the loop had nothing left to do"
    for node in "ab":
        (notes / f"hold@{node}").unlink()
    assert site.until_ended("t")["status"] == "completed"
    assert len(list(notes.glob("ended@*"))) == 2


def test_a_run_that_its_script_has_stopped_takes_no_further_step_after_the_loss_of_all_nodes(
    site: Site,
) -> None:
    notes = submit(site, "a", "b", stops_at=20, samples=None)
    noted(site, notes, "after", "a")
    noted(site, notes, "after", "b")
    stopped_at = site.trainer("t")["samples"]
    site.change(take="ab")
    site.until(lambda: not site.trainer("t")["workers"], LONG_S, "both are gone")
    site.change(give="ab")
    noted(site, notes, "after", "a", 2)
    noted(site, notes, "after", "b", 2)
    assert site.trainer("t")["samples"] == stopped_at
    assert any("(run.stop()): no further step" in log.read_text() for log in site.trainers.glob("*/*.log"))
    for node in "ab":
        (notes / f"hold@{node}").unlink()
    assert site.until_ended("t")["status"] == "completed"


@pytest.mark.parametrize("nodes", ["ab", "abc"])
def test_an_exchange_in_a_hook_is_whole_although_a_node_was_lost_in_it(nodes: str) -> None:
    with running_at_will(*nodes) as site:
        site.change(give=nodes)
        where = site.root / "where"
        where.mkdir()
        kept = {"every_s": 0.2}
        site.submit("t", "sums.py", str(where), str(len(nodes)), n_max=len(nodes), checkpoint=kept)
        assert site.until_ended("t")["status"] == "completed"
        assert (where / "killed").exists()
        assert json.loads((where / "sums.json").read_text()) == [40.0] * 8


def test_a_node_that_dies_between_two_optimisers_steps_for_one_loss_changes_no_weights(
    tmp_path: Path,
) -> None:
    by_hand, where = tmp_path / "by-hand", tmp_path / "where"
    for folder in (by_hand, where):
        folder.mkdir()
    command = [sys.executable, str(SCRIPTS / "between.py"), str(by_hand)]
    subprocess.run(command, cwd=by_hand, check=True, timeout=LONG_S)
    with running_at_will("a", "b") as site:
        site.change(give="ab")
        site.submit("t", "between.py", str(where), n_max=2)
        assert site.until_ended("t")["status"] == "completed"
    assert (where / "killed").exists()
    alone, found = (torch.load(folder / "weights.pt") for folder in (by_hand, where))
    for name, expected in alone.items():
        torch.testing.assert_close(found[name], expected, rtol=1e-12, atol=1e-14)


def test_a_trainer_ends_when_a_node_leaves_after_rank_0_has_ended(site: Site) -> None:
    notes = submit(site, "a", "b")
    noted(site, notes, "after", "a")
    noted(site, notes, "after", "b")
    first, second = site.trainer("t")["members"]
    (notes / f"hold@{first}").unlink()
    noted(site, notes, "ended", first)
    site.until(lambda: first not in site.trainer("t")["workers"], LONG_S, "rank 0 has ended")
    site.change(take=second)
    ended = site.until_ended("t")
    assert (ended["status"], ended["samples"]) == ("completed", SAMPLES)
    site.until(lambda: not site.get("status")["pilots"], LONG_S, "no node is held")


@pytest.mark.parametrize("launcher", ["native", "torchrun"])
def test_a_script_behind_another_program_fails_with_what_to_do(launcher: str) -> None:
    script = {"native": "stop_early.py", "torchrun": "count_torchrun.py"}[launcher]
    with running_at_will("a", max_failures=0) as site:
        site.change(give="a")
        site.submit("t", "wrapper.py", script, str(site.root), "0.0", n_max=1, launcher=launcher)
        assert site.until_ended("t")["status"] == "failed"
        logs = [path.read_text() for path in site.trainers.glob("*/*.log")]
        assert any("Let the spec's command start the script itself" in log for log in logs), logs


def test_a_script_that_never_reaches_the_loop_is_told_of() -> None:
    with running_at_will("a", silent_start_s=1) as site:
        site.change(give="a")
        site.submit("t", "wrapper.py", "-c", "import time; time.sleep(1000)", n_max=1)
        site.until(lambda: site.trainer("t")["note"], LONG_S, "a note")
        assert "launcher: torchrun" in site.trainer("t")["note"]
        assert "has not reached elastic.Run" in (site.root / "daemon.log").read_text()
