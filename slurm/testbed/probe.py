"""What became of main jobs: how long each waited, how it ended, and how full the machine was."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

ENDED = re.compile(r"^JobId=(\d+) .* JobState=(\S+) Partition=\S+ ", re.MULTILINE)
"""Of a line that `jobcomp/filetxt` writes when a job ends; its name before the state may hold anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MainRun:
    """A main job that was submitted. Times in Unix seconds, as sbatch's caller and the job itself saw them.

    Attributes:
        id: Slurm's.
        run_s, limit_s: What it needs, and what it asked for.
        started, ended: None if it has not; `ended` is None as well for a job that was killed.
        state: How it ended, as Slurm says it (COMPLETED, FAILED, NODE_FAIL, ...); "" before.
    """

    number: int
    id: int
    size: int
    run_s: float
    limit_s: float
    submitted: float
    started: float | None
    ended: float | None
    state: str

    @property
    def wait_s(self) -> float | None:
        """From the call of sbatch to the first line of the script."""
        return None if self.started is None else self.started - self.submitted


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution of seconds."""

    count: int
    median: float
    mean: float
    p90: float
    p99: float
    most: float


def measure(directory: Path, jobcomp: Path) -> tuple[MainRun, ...]:
    """What is known of the jobs of a load, by number; `jobcomp` is Slurm's file of ended jobs."""
    states: dict[int, str] = {}
    with contextlib.suppress(FileNotFoundError):  # no job has ended
        states = ended(jobcomp.read_text("utf-8", "replace"))
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError):  # none was submitted
        lines = (directory / "submitted.jsonl").read_text("utf-8").splitlines()
    found = []
    for row in map(json.loads, lines):
        del row["submit_s"]
        file = str(directory / str(row["number"]))
        began, over = _first(Path(f"{file}.started")), _first(Path(f"{file}.ended"))
        found.append(MainRun(**row, started=began, ended=over, state=states.get(row["id"], "")))
    return tuple(sorted(found, key=lambda run: run.number))


def ended(jobcomp: str) -> dict[int, str]:
    """Job -> its state in the end; of a requeued job, which has several lines, the last."""
    return {int(number): state for number, state in ENDED.findall(jobcomp)}


def _first(path: Path) -> float | None:
    """The first line: a job that was requeued has waited until its first start."""
    try:
        return float(path.read_text().split()[0])
    except (FileNotFoundError, IndexError):
        return None


def waits(runs: Iterable[MainRun]) -> list[float]:
    """Of the jobs that started, in order of their numbers."""
    return [run.wait_s for run in runs if run.wait_s is not None]


def spread(seconds: Sequence[float]) -> Spread | None:
    """None of none."""
    if not seconds:
        return None
    median, p90, p99, most = np.percentile(seconds, [50, 90, 99, 100]).tolist()
    return Spread(len(seconds), median, float(np.mean(seconds)), p90, p99, most)


def with_room(runs: Sequence[MainRun], nodes: int) -> list[MainRun]:
    """The jobs that fitted beside all main jobs that ran or waited when they were submitted.

    Nothing but pilots, and Slurm itself, can have made them wait.
    """
    return [run for run in runs if run.size + _wanted_before(run, runs) <= nodes]


def _wanted_before(run: MainRun, runs: Sequence[MainRun]) -> int:
    return sum(
        other.size
        for other in runs
        if (other.submitted, other.id) < (run.submitted, run.id) and _end(other) > run.submitted
    )


def _end(run: MainRun) -> float:
    """When it ended; a job that was killed counts for the time that it needed."""
    if run.started is None:
        return float("inf")
    return run.ended if run.ended is not None else run.started + run.run_s


def busy(runs: Iterable[MainRun], begin: float, end: float) -> list[tuple[float, int]]:
    """How many nodes main jobs had: (since when, nodes), from `begin` to `end` (Unix s)."""
    changes: dict[float, int] = {begin: 0, end: 0}
    for run in runs:
        if run.started is None:
            continue
        since, until = max(run.started, begin), min(_end(run), end)
        if since < until:
            changes[since] = changes.get(since, 0) + run.size
            changes[until] = changes.get(until, 0) - run.size
    times = sorted(changes)
    levels = np.cumsum([changes[t] for t in times]).tolist()
    return list(zip(times, levels, strict=True))


def utilisation(runs: Iterable[MainRun], nodes: int, begin: float, end: float) -> float:
    """The share of node-time, 0 to 1, that main jobs had between `begin` and `end` (Unix s)."""
    steps = busy(runs, begin, end)
    used = sum(level * (then - now) for (now, level), (then, _) in pairwise(steps))
    return used / (nodes * (end - begin))
