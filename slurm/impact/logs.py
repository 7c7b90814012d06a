"""Parses slurmctld's log of main jobs and pilots: lines in, events out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from benchmarks.testbeds.impact.events import Event, Job, What, job_of, of_daemon

JOB = r"(?P<{0}>\d+(?:_(?:\d+|\*))?(?:\+\d+)?(?:\(\d+\))?)"
STAMP = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)\] (.*)")
PATTERNS: tuple[tuple[What, re.Pattern[str]], ...] = tuple(
    (what, re.compile(pattern.replace("JOB", JOB.format("job"))))
    for what, pattern in (
        (What.STARTED, r"sched: Allocate JobId=JOB NodeList=(?P<nodes>\S+)"),
        (What.STARTED, r"_start_job: Started JobId=JOB in \S+ on (?P<nodes>\S+)"),
        (What.START_FAILED, r"Failed to start JobId=JOB "),
        (What.DEALLOCATED, r"Deallocate JobId=JOB due to hetjob start failure"),
        (What.REQUEUED, r"Requeuing JobId=JOB"),
        (What.PREEMPTED, r"^preempted JobId=\S+ has been killed to reclaim resources for JobId=JOB"),
        (What.BUSY, r"Note very large processing time"),
    )
)


def of_slurmctld(text: str) -> Iterator[Event]:
    """Yield what slurmctld's log says of jobs, in its order; lines of another form are left out."""
    for line in text.splitlines():
        stamp = STAMP.match(line)
        if stamp is None:
            continue
        for what, pattern in PATTERNS:
            if found := pattern.search(stamp[2]):
                said = found.groupdict()
                job = job_of(said.get("job", ""))
                nodes = nodes_of(said.get("nodes", ""))
                yield from _event(stamp[1], what, () if job is None else (job,), stamp[2], nodes)
                break


def nodes_of(text: str) -> frozenset[str]:
    """Return the nodes of a set such as n[1,3-4]; none of a text that is no set."""
    try:
        return frozenset(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return frozenset()


def _event(
    stamp: str, what: What, jobs: tuple[Job, ...], text: str, nodes: frozenset[str]
) -> Iterator[Event]:
    try:
        yield Event(datetime.fromisoformat(stamp).timestamp(), what, jobs, text, nodes=nodes)
    except (ValueError, OverflowError):
        return  # no moment that there is


def events_of(logs: Mapping[str, str]) -> list[Event]:
    """Return what the logs of slurmctld and the daemon say, in order of time."""
    found = [*of_slurmctld(logs.get("slurmctld", "")), *of_daemon(logs.get("daemon", ""))]
    return sorted(found, key=lambda event: event.time)
