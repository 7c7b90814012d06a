"""Results of main jobs: each one's wait and end, and how full the machine was."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class MainRun:
    """A main job that was submitted, or one task of an array. Times in Unix seconds, as the caller
    of sbatch or bsub and the job itself saw them.

    Attributes:
        number, task: Numbers of the load's job and its task; 0 without an array.
        kind: The kind of job that it is an example of.
        id: The batch system's number of it; of an array's task that has not started, of the array.
        job: The number that sbatch or bsub printed.
        size: Nodes' worth that it takes.
        run_s, limit_s: The time that it needs, and its time limit.
        submitted, accepted: When sbatch or bsub was called, and when it returned.
        eligible: When it could start at the earliest: it may wait for another job's end or a reservation.
            None: what it waits for has not come yet.
        started, ended: None if it has not; `ended` is None as well for a job that was killed.
        state: How it ended: COMPLETED or, in the batch system's words, FAILED, NODE_FAIL, ...; "" before.
        starts: Number of its starts.
    """

    number: int
    id: int
    size: float
    run_s: float
    limit_s: float
    submitted: float
    started: float | None
    ended: float | None
    state: str
    task: int = 0
    kind: str = "nodes"
    job: int = 0
    accepted: float | None = None
    eligible: float | None = None
    starts: int = 0

    @property
    def wait_s(self) -> float | None:
        """From the submission, or when the job became eligible later, to the first line of the script."""
        if self.started is None:
            return None
        return self.started - (self.submitted if self.eligible is None else self.eligible)


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution of seconds."""

    count: int
    median: float
    mean: float
    p90: float
    p99: float
    most: float


def measure(directory: Path, states: Mapping[int, str]) -> tuple[MainRun, ...]:
    """Return the known facts on a load's jobs, by number and task; `states` are those of ended jobs."""
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError):  # none was submitted
        lines = (directory / "submitted.jsonl").read_text("utf-8").splitlines()
    rows = {row["number"]: row for row in map(json.loads, lines)}
    found: dict[int, list[MainRun]] = {}
    for number, row in sorted(rows.items()):
        eligible = _eligible(row, found.get(row["after"]))
        found[number] = [_run(directory, row, task, states, eligible) for task in range(row["tasks"])]
    return tuple(run for runs in found.values() for run in runs)


def _run(
    directory: Path, row: Mapping[str, Any], task: int, states: Mapping[int, str], eligible: float | None
) -> MainRun:
    starts = _lines(directory / f"{row['number']}.{task}.started")
    ends = _lines(directory / f"{row['number']}.{task}.ended")
    own = int(starts[0][1]) if starts else row["job"]
    same = ("number", "kind", "job", "size", "run_s", "limit_s", "submitted", "accepted")
    return MainRun(
        **{name: row[name] for name in same},
        task=task,
        id=own,
        eligible=eligible,
        started=float(starts[0][0]) if starts else None,
        ended=float(ends[0][0]) if ends else None,
        state=states.get(own, ""),
        starts=len(starts),
    )


def _eligible(row: Mapping[str, Any], before: Sequence[MainRun] | None) -> float | None:
    """Return when a job could start: after the end of the one before it, and with its reservation."""
    ends = [_end(run) for run in before or ()]
    moment: float = max(row["submitted"], row["begins"] or 0.0, *ends, 0.0)
    return moment if moment < float("inf") else None


def _lines(path: Path) -> list[list[str]]:
    """The words of each whole line; a job that was requeued has several."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]


def waits(runs: Iterable[MainRun]) -> list[float]:
    """Return the waits (s) of the jobs that started, in order of their numbers."""
    return [run.wait_s for run in runs if run.wait_s is not None]


def spread(seconds: Sequence[float]) -> Spread | None:
    """None of none."""
    if not seconds:
        return None
    median, p90, p99, most = np.percentile(seconds, [50, 90, 99, 100]).tolist()
    return Spread(len(seconds), median, float(np.mean(seconds)), p90, p99, most)


def with_room(runs: Sequence[MainRun], nodes: int) -> list[MainRun]:
    """The jobs that fitted beside all main jobs that ran or waited when they were submitted.

    Nothing but pilots, and the batch system itself, can have made them wait.
    """
    return [run for run in runs if run.size + _wanted_before(run, runs) <= nodes]


def _wanted_before(run: MainRun, runs: Sequence[MainRun]) -> float:
    return sum(
        other.size
        for other in runs
        if (other.submitted, other.id) < (run.submitted, run.id) and _end(other) > run.submitted
    )


def _end(run: MainRun) -> float:
    """Return when it ended; a job that was killed counts for the time that it needed."""
    if run.started is None:
        return float("inf")
    return run.ended if run.ended is not None else run.started + run.run_s


def busy(runs: Iterable[MainRun], begin: float, end: float) -> list[tuple[float, float]]:
    """Return how many nodes' worth main jobs had: (since when, nodes), from `begin` to `end` (Unix s)."""
    changes: dict[float, float] = {begin: 0, end: 0}
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
