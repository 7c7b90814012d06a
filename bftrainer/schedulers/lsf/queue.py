"""Which pending main jobs could start now if we gave up hosts. Pure.

LSF tells how many slots a job asks for, not which hosts it may have. So this counts whole hosts, in the order
of queues' priorities and of submission. What it cannot know (limits of users, wishes for hosts) makes a claim
that leads to no start; such a claim lapses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from bftrainer.model.machine import Claim
from bftrainer.schedulers.lsf.rows import JobRow, QueueRow
from bftrainer.schedulers.shared.patience import Known
from bftrainer.schedulers.shared.wanted import Claims

MOST_JOBS = 5000
"""So many pending jobs are tried at a poll."""
OTHERWISE = re.compile(
    r"dependency|limit|hold|held|suspended|begin time|start time|dispatch window|run window|inactive|"
    r"advance reservation|licen[cs]e|resume|pre-?exec|requeue|throttl",
    re.IGNORECASE,
)
"""What a reason says of a job that hosts would not help."""


def may_start(job: JobRow) -> bool:
    """Whether hosts may be all that a job waits for."""
    return job.state == "PEND" and job.slots > 0 and not OTHERWISE.search(job.reason)


def in_order(jobs: Iterable[JobRow], queues: Mapping[str, QueueRow]) -> list[JobRow]:
    """The jobs in the order in which LSF tries to start them, as far as we know."""

    def number(job: JobRow) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"[0-9]+", job.id))

    def priority(job: JobRow) -> int:
        queue = queues.get(job.queue)
        return queue.priority if queue else 0

    return sorted(jobs, key=lambda job: (-priority(job), number(job)))


def hosts_of(job: JobRow, slots: int, launch_slots: int) -> int:
    """How many whole hosts of so many slots a job asks for, without its slots on a launch host."""
    return max(1, -(-max(1, job.slots - launch_slots) // max(1, slots)))


def claims(
    jobs: Iterable[JobRow],
    queues: Mapping[str, QueueRow],
    free: Collection[str],
    held: Collection[str],
    *,
    slots: int,
    launch_slots: int,
    known: Known,
) -> Claims:
    """What the jobs need of `held` hosts, ours, each with so many slots, besides those that are `free`."""
    left, ours, room = len(free), frozenset(held), len(held)
    found: list[Claim] = []
    ready, users = set(), {}
    able = [
        job for job in jobs if may_start(job) and job.id not in known.lapsed and job.user not in known.doubted
    ]
    for job in in_order(able, queues)[:MOST_JOBS]:
        need = hosts_of(job, slots, launch_slots)
        if need > left + room:
            continue  # it waits for others; a smaller one behind it may be backfilled
        ready.add(job.id)
        users[job.id] = job.user
        given = max(0, need - left)
        left -= need - given
        if given:
            found.append(Claim(job=job.id, nodes=ours, count=given))
            room -= given
    return Claims(tuple(found), ready=frozenset(ready), users=users)
