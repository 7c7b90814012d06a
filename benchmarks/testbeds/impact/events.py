"""Events of main jobs and pilots, and the daemon's log of them: lines in, events out. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from benchmarks.testbeds.runs import MainRun


class What(StrEnum):
    """Kinds of events of a job, or of nodes for it."""

    STARTED = "started"
    START_FAILED = "start failed"
    DEALLOCATED = "deallocated"
    REQUEUED = "requeued"
    PREEMPTED = "preempted"
    BUSY = "batch system busy"
    VACATED = "vacated"
    POLL_FAILED = "poll failed"


@dataclass(frozen=True, slots=True)
class Job:
    """A job as Slurm writes it: 17, 17_3 (a task of an array), 17+1 (a component of a heterogeneous job).

    `task` is None for a job that is no task, and for an array whose tasks are not told apart.
    """

    number: int
    task: int | None = None

    def is_of(self, run: MainRun) -> bool:
        """Return whether this is the main job or the task, or one of its components."""
        if self.task is not None:  # the array itself has the number of one of its tasks
            return (self.number, self.task) == (run.job, run.task)
        return self.number in (run.job, run.id)


@dataclass(frozen=True, slots=True)
class Event:
    """Something at a moment (Unix s).

    Attributes:
        jobs: The main jobs that it is about, or those for which a pilot was preempted or nodes were vacated.
        count: Pilots or nodes; 1 of a main job.
        seconds: How long it took, if that is said.
        nodes: Those that the job started on, or that were vacated, if they are said.
        text: The line without its time.
    """

    time: float
    what: What
    jobs: tuple[Job, ...]
    text: str
    count: int = 1
    seconds: float = 0.0
    nodes: frozenset[str] = frozenset()


NUMBER = re.compile(r"(\d+)(?:_(\d+))?")
DAEMON = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) [A-Z]+ (\S+)(.*)")
FIELD = re.compile(r"(\w+)=(\S+)")


def job_of(text: str) -> Job | None:
    """Return the job that a text names at its beginning, as a log does."""
    match = NUMBER.match(text)
    if match is None:
        return None
    return Job(int(match[1]), None if match[2] is None else int(match[2]))


def of_daemon(text: str) -> Iterator[Event]:
    """Yield what the daemon's log, in its form `text`, says of nodes for main jobs."""
    for line in text.splitlines():
        match = DAEMON.match(line)
        if match is None or match[3] not in READERS:
            continue
        try:
            moment = datetime.fromisoformat(match[1]).timestamp() + int(match[2]) / 1000
        except (ValueError, OverflowError):
            continue
        fields = dict(FIELD.findall(match[4]))
        yield READERS[match[3]](moment, fields, f"{match[3]}{match[4]}")


def _vacated(moment: float, fields: Mapping[str, str], text: str) -> Event:
    jobs = tuple(job for word in fields.get("jobs", "").split(",") if (job := job_of(word)) is not None)
    return Event(
        moment,
        What.VACATED,
        jobs,
        text,
        int(count) if (count := fields.get("count", "")).isdecimal() else 1,
        _number(fields.get("seconds", "")),
        frozenset(fields.get("nodes", "").split(",")) - {""},
    )


def _poll_failed(moment: float, fields: Mapping[str, str], text: str) -> Event:
    return Event(moment, What.POLL_FAILED, (), text)


READERS: Mapping[str, Callable[[float, Mapping[str, str], str], Event]] = {
    "vacated": _vacated,
    "scheduler_failed": _poll_failed,
}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
