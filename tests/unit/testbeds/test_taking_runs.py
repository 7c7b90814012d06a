"""A measurement goes on where it was interrupted, and says what all its pairs show."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import slurm_impact

from benchmarks.testbeds.harvest import Outcome
from benchmarks.testbeds.impact import benchmark, curve, taking
from benchmarks.testbeds.impact.differences import WITH, WITHOUT
from benchmarks.testbeds.impact.taking import Taken, stored
from slurm.impact.condition import Condition
from tests.support.main_runs import SUBMITTED, main_run

CONDITION = Condition(mix="cores", nodes=8, jobs=30, seconds=60, load=0.28, shared=True)


def outcome(wait_s: float) -> Outcome:
    runs = tuple(main_run(number, wait_s, kind="cores") for number in range(1, 5))
    return Outcome(
        nodes=8,
        runs=runs,
        begin=SUBMITTED,
        end=SUBMITTED + 60,
        main=0.3,
        held=0.2,
        trained=0.1,
        samples=5,
        training=((SUBMITTED, 2),),
        trainers=None,
    )


def store(folder: Path, seed: int = 1, wait_s: float = 0.5) -> Taken:
    return taking._store(folder, taking._options(CONDITION, seed), outcome(wait_s), {"slurmctld": "said"})


def test_a_run_is_found_again_unless_it_was_taken_otherwise(tmp_path: Path) -> None:
    assert stored(tmp_path, CONDITION, 1) is None
    taken = store(tmp_path)
    found = stored(tmp_path, CONDITION, 1)
    assert found is not None
    assert (found.runs, found.logs, found.commit) == (taken.runs, {"slurmctld": "said"}, taken.commit)
    assert stored(tmp_path, CONDITION, 2) is None
    assert stored(tmp_path, replace(CONDITION, load=0.2), 1) is None
    assert stored(tmp_path, replace(CONDITION, headroom="10%"), 1) is None
    assert "headroom" not in taking._options(CONDITION, 1), "runs from before there was one are found"
    assert replace(CONDITION, headroom="10%").name() == f"{CONDITION.name()}-headroom-10"
    (tmp_path / "result.json").rename(tmp_path / "result.draft")  # interrupted while it was written
    assert stored(tmp_path, CONDITION, 1) is None


class Bench:
    """Stands for the testbed: notes what is taken, and may be interrupted."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.taken: list[tuple[int, str]] = []
        self._stop_at = stop_at

    def __call__(self, folder: Path, condition: Condition, seed: int, mode: str, *more: Any) -> Taken:
        if len(self.taken) == self._stop_at:
            raise KeyboardInterrupt
        self.taken.append((seed, mode))
        return taking._store(folder, taking._options(condition, seed), outcome(0.5), {})


def run(monkeypatch: pytest.MonkeyPatch, bench: Bench, *words: str) -> int:
    monkeypatch.setattr(benchmark, "take", bench)
    monkeypatch.setattr(sys, "argv", ["slurm_impact.py", *words])
    return slurm_impact.main()


def test_it_goes_on_where_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--seeds", "1-2", "--jobs", "30", "--out", str(tmp_path), "--check")
    first = Bench(stop_at=4)
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, first, *words)
    assert first.taken == [(1, WITHOUT), (1, WITH), (1, "again"), (2, WITHOUT)]
    second = Bench()
    assert run(monkeypatch, second, *words) == 0
    assert second.taken == [(2, WITH), (2, "again")]
    folder = tmp_path / "cores-shared-8-nodes"
    said = (folder / "comparison.md").read_text("utf-8")
    assert said.rstrip() in capsys.readouterr().out
    assert "2 pairs (seeds 1, 2)" in said
    assert (folder / "waits.png").exists()
    third = Bench()
    run(monkeypatch, third, *words, "--again")
    assert len(third.taken) == 6
    fourth = Bench()
    run(monkeypatch, fourth, *words[:-1], "--slow-polls", "0.5", "--only", "without")
    assert fourth.taken == [(1, WITHOUT), (2, WITHOUT)]


def test_a_missed_goal_is_an_error_only_if_it_is_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def slow(folder: Path, condition: Condition, seed: int, mode: str, *more: Any) -> Taken:
        return taking._store(
            folder, taking._options(condition, seed), outcome(3.0 if mode == WITH else 0.5), {}
        )

    words = ("--out", str(tmp_path))
    monkeypatch.setattr(benchmark, "take", slow)
    for more, code in ((), 0), (("--check",), 1):
        monkeypatch.setattr(sys, "argv", ["slurm_impact.py", *words, *more])
        assert slurm_impact.main() == code
    said = (tmp_path / "cores-shared-8-nodes" / "comparison.md").read_text("utf-8")
    assert "**missed**: median later by less than 0.2 s beyond noise: +2.50 s" in said
    assert "4 of 4 jobs started over a second later than in both runs without" in said


def test_the_curve_of_headrooms_takes_only_runs_with_it_beside_the_pairs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Less is harvested, and jobs wait less, with more headroom; the runs without serve all."""
    asked: list[tuple[str, int, str]] = []

    def take(folder: Path, condition: Condition, seed: int, mode: str, *more: Any) -> Taken:
        asked.append((condition.headroom, seed, mode))
        left = float(condition.headroom.rstrip("%") or 10)
        wait_s = 1.5 - left / 30 if mode == WITH else 0.5
        harvested = replace(outcome(wait_s), held=0.6 - left / 100 if mode == WITH else 0.0)
        return taking._store(folder, taking._options(condition, seed), harvested, {})

    words = ("--headrooms", "--seeds", "1-2", "--out", str(tmp_path))
    monkeypatch.setattr(benchmark, "take", take)
    monkeypatch.setattr(sys, "argv", ["slurm_impact.py", *words])
    assert slurm_impact.main() == 0
    usual = [("", mode) for mode in benchmark.ORDER]
    wanted = [*usual, *((headroom, WITH) for headroom in curve.HEADROOMS)]
    assert asked == [(headroom, seed, mode) for seed in (1, 2) for headroom, mode in wanted]
    said = capsys.readouterr().out
    assert "| `auto` | 2 | +0.67 s | +0.67 s | +0.67 s | 4.00 | 0.80 |" in said
    assert "| `0` | 2 | +1.00 s | +1.00 s | +1.00 s | 4.80 | 0.80 |" in said
    assert "| `30%` | 2 | +0.00 s | +0.00 s | +0.00 s | 2.40 | 0.80 |" in said
    assert "| without, again | 2 | +0.00 s | +0.00 s | +0.00 s | 0 | 0 |" in said
    folder = tmp_path / "cores-shared-8-nodes"
    assert (folder / "headroom.md").read_text("utf-8").strip() in said
    assert (folder / "headroom.png").exists()


def test_what_the_documentation_shows_can_be_taken() -> None:
    for condition in slurm_impact.DOCUMENTED:
        for seed in range(1, 6):
            assert len(condition.main_jobs(seed)) == condition.jobs
    assert len({condition.name() for condition in slurm_impact.DOCUMENTED}) == len(slurm_impact.DOCUMENTED)


def test_seeds() -> None:
    assert benchmark.seeds_of("1-3,7") == [1, 2, 3, 7]
    with pytest.raises(argparse.ArgumentTypeError, match="write seeds as 1-5"):
        benchmark.seeds_of("many")
