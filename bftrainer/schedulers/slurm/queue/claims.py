"""Finds pending main jobs that could start now, and the pilots' nodes that they would need. Pure.

This follows what Slurm's scheduler does with the queue, as far as squeue shows it: jobs in the order of
their partition's tier and their priority; a job that cannot start keeps its nodes from those behind it,
unless they end in time (backfill). What squeue does not show (topology, licences, limits still to come) can
make this wrong in both directions. Two things mend that. Slurm's own plan names the nodes on which it expects
a job to start: where they are ours, exactly these are claimed. And a claim that leads to no start lapses, see
`patience.py`.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from bftrainer.schedulers.slurm.queue.resources import Rooms
from bftrainer.schedulers.slurm.queue.walk import Walk
from bftrainer.schedulers.slurm.rows import NodeRow, Partition, SlurmJobRow

DEPTH = 500
"""Jobs of one user that are tried: Slurm's backfill looks at as many by default (bf_max_job_test)."""
MOST_JOBS = 5000
"""Jobs of all users that are tried at one poll."""
WALK_S = 1.0
"""Seconds that the jobs of all users take at one poll, at most. One user's take half at most of what the
others before have left: users can make jobs that take long, and the main jobs of all wait for the answer."""
LEAST_S = 0.005
"""Every user has as much."""
WAITING = (
    "None",
    "Priority",
    "Resources",
    "ReqNodeNotAvail",
    "Nodes required for job",
    "Nodes_required_for_job",
)
"""Beginnings of the reasons of jobs that wait for nodes only."""
BEGINS_SOON_S = 10.0
"""Seconds before its given begin time when the nodes of a heterogeneous job are cleared. One whose start has
failed has such a time, too."""
OTHERWISE = (
    "Assoc",
    "BeginTime",
    "DeadLine",
    "Dependency",
    "JobHeld",
    "JobArrayTaskLimit",
    "Licenses",
    "PartitionInactive",
    "PartitionDown",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOS",
)
"""Beginnings of the reasons of jobs that nodes would not help."""


def may_start(job: SlurmJobRow, now: float) -> bool:
    """Return whether nodes may be all that a pending job waits for."""
    if job.state != "PENDING" or job.priority <= 0 or job.count <= 0:  # priority 0: held
        return False
    if begins_later(job, now, BEGINS_SOON_S if job.whole != job.id else 0.0):
        return False
    return job.reason == "BeginTime" or not job.reason.startswith(OTHERWISE)


def begins_later(job: SlurmJobRow, now: float, ahead_s: float = 0.0) -> bool:
    """Return whether Slurm may not start a pending job within `ahead_s` yet, as it is to begin later. Slurm
    gives BeginTime as the reason, or none if it has not looked at the job since that time was changed: else a
    user could have nodes given back for a job again and again, and put its start off each time."""
    if job.reason == "BeginTime":  # also after that time, until Slurm looks at the job again
        return job.start is None or job.start > now + ahead_s
    return job.reason == "None" and job.start is not None and job.start > now + ahead_s


def waits_for_nodes(job: SlurmJobRow, now: float, flexible: Collection[str] = ()) -> bool:
    """Return whether a pending job waits for nodes only, of those that could be ours; for nodes of a
    reservation only if that is one of `flexible`. Of others we need Slurm's plan to know."""
    return (
        may_start(job, now)
        and (not job.reservation or job.reservation in flexible)
        and job.reason.startswith((*WAITING, "BeginTime"))
    )


def in_order(jobs: Collection[SlurmJobRow], partitions: Mapping[str, Partition]) -> list[SlurmJobRow]:
    """The jobs in the order in which Slurm tries to start them."""
    tiers = {names: _tier(names, partitions) for names in {job.partitions for job in jobs}}

    def number(job: SlurmJobRow) -> tuple[int, ...]:
        return tuple(int(part) for part in job.id.replace("+", "_").split("_") if part.isdecimal())

    return sorted(jobs, key=lambda job: (-tiers[job.partitions], -job.priority, number(job)))


def _tier(names: Sequence[str], partitions: Mapping[str, Partition]) -> int:
    return max((partitions[name].tier for name in names if name in partitions), default=0)


def able(jobs: Collection[SlurmJobRow], now: float, lapsed: Collection[str]) -> list[SlurmJobRow]:
    """The jobs that may start, without those for which nothing is kept. A heterogeneous job may if every part
    of it may."""
    halted = {name.partition("+")[0] for name in lapsed}
    halted |= {job.whole for job in jobs if job.whole != job.id and not may_start(job, now)}
    return [job for job in jobs if job.whole not in halted and may_start(job, now)]


def together(jobs: Iterable[SlurmJobRow]) -> list[list[SlurmJobRow]]:
    """Jobs in their order, each with all its parts: several if it is heterogeneous."""
    found: dict[str, list[SlurmJobRow]] = {}
    for job in jobs:
        found.setdefault(job.whole, []).append(job)
    return list(found.values())


def walked(
    jobs: Sequence[SlurmJobRow],
    nodes: Mapping[str, NodeRow],
    partitions: Mapping[str, Partition],
    rooms: Rooms,
    now: float,
    ready: Mapping[str, float] | None = None,
    *,
    doubted: Collection[str] = (),
    preempting: bool = False,
    clock: Callable[[], float] = time.thread_time,
) -> Walk:
    """Return which of `jobs`, main jobs that may start, could, and where; they are tried in their order.
    `ready` says since when jobs have had all nodes that they need, as far as we know. Jobs of users that are
    `doubted` only go where Slurm plans them. `preempting`: main jobs may preempt our pilots. A user whose
    jobs have taken too much time on the `clock` has the rest tried at a later poll."""
    walk = Walk(nodes, partitions, rooms, now, ready or {}, preempting=preempting)
    tried: Counter[str] = Counter()
    spent: defaultdict[str, float] = defaultdict(float)
    left, began, last, user = MOST_JOBS, clock(), clock(), ""
    for parts in together(jobs):
        job = parts[0]
        moment = clock()
        spent[user] += moment - last
        last, user = moment, job.user
        if spent[user] > max(LEAST_S, (WALK_S - (moment - began)) / 2):
            continue
        if tried[user] >= DEPTH or walk.in_vain(parts):
            continue
        tried[user] += len(parts)
        left -= len(parts)
        placeable = user not in doubted and all(waits_for_nodes(part, now, rooms.flexible) for part in parts)
        done = walk.start_many(job) if placeable and job.tasks > 1 else 0
        for _ in range(job.tasks - done):
            if not walk.open or not walk.start(parts, placeable=placeable):
                break
        if not walk.open or left <= 0:
            break
    return walk
