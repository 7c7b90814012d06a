"""Main jobs as a measurement of Slurm finds them, made up for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.testbeds.impact.differences import MODES, JobWaits
from benchmarks.testbeds.runs import MainRun

SUBMITTED = 1_795_371_000.0


def main_run(number: int, wait_s: float | None, **changed: Any) -> MainRun:
    """A job that was submitted at a fixed moment and, if `wait_s` says when, started."""
    started = None if wait_s is None else SUBMITTED + wait_s
    values: dict[str, Any] = {
        "number": number,
        "id": 10 * number,
        "job": 10 * number,
        "size": 1,
        "run_s": 4,
        "limit_s": 60,
        "submitted": SUBMITTED,
        "accepted": SUBMITTED + 0.05,
        "eligible": SUBMITTED,
        "started": started,
        "ended": None if started is None else started + 4,
        "state": "" if started is None else "COMPLETED",
        "starts": 0 if started is None else 1,
    }
    return MainRun(**{**values, **changed})


def three(rows: Sequence[tuple[float | None, float | None, float | None]]) -> dict[str, list[MainRun]]:
    """The three runs of jobs, a row of waits each."""
    return {
        mode: [main_run(number, row[at]) for number, row in enumerate(rows, 1)]
        for at, mode in enumerate(MODES)
    }


def waited(rows: Sequence[tuple[float, float, float]]) -> list[JobWaits]:
    """The waits of jobs in three runs."""
    return [
        JobWaits(number=number, task=0, kind="nodes", without=a, again=b, with_=w)
        for number, (a, b, w) in enumerate(rows, 1)
    ]
