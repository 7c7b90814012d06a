"""The common part of readers of job logs: a node is idle when no job uses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bftrainer.messages.files.logs import TELLS_NOTHING
from bftrainer.model.text import counted
from bftrainer.traces.formats.lines import ReadIntervals
from bftrainer.traces.intervals import Interval, LogError


class LoggedJob(NamedTuple):
    """`nodes` are used from `start` until just before `end` (infinity: still running)."""

    start: float
    end: float
    nodes: Sequence[str]


NEVER = LoggedJob(float("inf"), float("inf"), ())
"""A job that never started."""
NAMELESS = LoggedJob(float("inf"), float("inf"), ())
"""A job that ran, nobody knows where."""


def idle(jobs: Iterable[LoggedJob], nodes: Iterable[str], begin: float, end: float) -> Iterator[Interval]:
    """The nodes' idle intervals between `begin` and `end`; open at the end where they still are idle.

    `jobs` come in order of their start; they may share nodes.
    """
    free = dict.fromkeys(nodes, begin)
    for start, until, names in jobs:
        for name in names:
            since = free[name]
            if start > since:
                yield Interval(since, start, name)
            if until > since:
                free[name] = until
    for name, since in free.items():
        if since < end:
            yield Interval(since, float("inf"), name)


def span(jobs: Iterable[LoggedJob]) -> tuple[float, float]:
    """The first start and the last start or end.

    Raises:
        LogError: no job ever ran.
    """
    begin, end = float("inf"), float("-inf")
    for job in jobs:
        begin = min(begin, job.start)
        end = max(end, job.start, job.end if job.end < float("inf") else job.start)
    if begin > end:
        raise LogError(TELLS_NOTHING.say(why="no job in it ever ran"))
    return begin, end


def found(rows: Iterable[LoggedJob]) -> ReadIntervals:
    """The idle intervals of a log of jobs with node lists: of all nodes that any job used, when no job did.

    Raises:
        LogError: no job ever ran.
    """
    jobs, nodes, never, nameless = [], set[str](), 0, 0
    for row in rows:
        if row is NEVER:
            never += 1
        elif row is NAMELESS:
            nameless += 1
        else:
            nodes.update(row.nodes)
            jobs.append(row)
    if nameless and not jobs:
        raise LogError(TELLS_NOTHING.say(why="none of its jobs names its nodes"))
    begin, end = span(jobs)
    jobs = sorted((job for job in jobs if job.end > job.start), key=lambda job: job.start)
    running = sum(job.end == float("inf") for job in jobs)
    notes = []
    if never:
        notes.append(counted(never, "job") + " never started; left out")
    if nameless:
        notes.append(counted(nameless, "job ran", "jobs ran") + " on nodes that are not named; left out")
    if running:
        notes.append(
            counted(running, "job has", "jobs have")
            + " no end: such nodes count as used to the end of the log"
        )
    return ReadIntervals(idle(jobs, sorted(nodes), begin, end), frozenset(nodes), begin, end, tuple(notes))
