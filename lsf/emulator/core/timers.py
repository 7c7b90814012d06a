"""Events at known times: a heap of timers of jobs."""

from __future__ import annotations

import heapq
from enum import Enum, auto
from typing import NamedTuple


class What(Enum):
    """Purposes of a timer."""

    OVER = auto()
    """A simulated job has done its work."""
    LIMIT = auto()
    """A job has reached its run limit."""
    WARN = auto()
    """The signal before the run limit is due."""
    STEP = auto()
    """The next signal of a bkill is due."""
    REPORT = auto()
    """LSF learns that a job's processes are gone."""
    CLEAN = auto()
    """A finished job is listed no longer."""
    SUBMIT = auto()
    """The next job of the main load is due."""
    DISPATCH = auto()
    """Jobs are dispatched."""


class Timer(NamedTuple):
    """Due at `time`, for one run of one job; `number` keeps those of one time in order."""

    time: float
    number: int
    what: What
    job: int
    run: int


class Timers:
    """Timers in order of time, then as they were set."""

    def __init__(self) -> None:
        """None is set."""
        self._heap: list[Timer] = []
        self._count = 0

    def set(self, time: float, what: What, job: int = 0, run: int = 0) -> None:
        """Add one."""
        self._count += 1
        heapq.heappush(self._heap, Timer(time, self._count, what, job, run))

    def next_time(self) -> float | None:
        """Return when the next one is due; None: there is none."""
        return self._heap[0].time if self._heap else None

    def due(self, now: float) -> Timer | None:
        """The next one that is due by now, which is forgotten; None: there is none."""
        return heapq.heappop(self._heap) if self._heap and self._heap[0].time <= now else None
