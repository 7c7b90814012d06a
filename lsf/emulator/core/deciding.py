"""Decides which jobs start, which must make room, and for which one slots are reserved. Pure.

First come, first served within a priority, with EASY backfill: slots are reserved for the first job that has
to wait, at the earliest time at which it fits if every job uses its whole run limit. A later job starts
before it only on slots that this start does not need, or if it ends by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

import numpy as np

from lsf.emulator.core.model import Demand
from lsf.emulator.core.placing import Bools, Hosts, Ints, Placement, place

NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that wants to start, or a suspended one that wants to go on.

    Attributes:
        limit_s: How long it may run from now on; infinity: for ever.
        preempts: Queues whose jobs make room for it.
        backfill: Whether it may use slots that are reserved.
        caps: The names of the limits that its slots count for.
        fixed: Where a suspended job has to go on.
        holds: It is suspended, and has its slots nonetheless.
    """

    id: int
    demand: Demand
    limit_s: float = NEVER
    preempts: frozenset[str] = frozenset()
    backfill: bool = True
    caps: tuple[str, ...] = ()
    fixed: Placement | None = None
    holds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job that has slots.

    Attributes:
        end: When it reaches its run limit.
        safe_until: It is not preempted before.
        ending: It has been told to end: its slots are free soon.
        gpus: That it has on each host.
        movable: It may start again elsewhere: a job with GPUs that may not is never preempted.
    """

    id: int
    queue: str
    placement: Placement
    end: float = NEVER
    started: float = 0.0
    safe_until: float = 0.0
    priority: int = 0
    ending: bool = False
    gpus: int = 0
    movable: bool = False


@dataclass(frozen=True, slots=True)
class Reservation:
    """The slots that are kept for the first job that has to wait, from `start` on; `spare` are the slots of
    every host that are free then besides, and `gpus` the GPUs."""

    job: int
    start: float
    placement: Placement
    spare: Ints
    gpus: Ints


@dataclass(slots=True)
class Decisions:
    """The decisions of one pass.

    Attributes:
        starts: Jobs that start or go on, and where.
        victims: Jobs that have to make room -> the job that they make it for.
        blocked: Jobs that wait although slots may be free -> the limit that holds them back.
        reservation: The reservation of the first job that has to wait.
    """

    starts: list[tuple[int, Placement]] = field(default_factory=list)
    victims: dict[int, int] = field(default_factory=dict)
    blocked: dict[int, str] = field(default_factory=dict)
    reservation: Reservation | None = None


def decide(
    hosts: Hosts,
    free: Ints,
    usable: Bools,
    waiting: Iterable[Waiting],
    running: Sequence[Running],
    now: float,
    caps: Mapping[str, int] | None = None,
    *,
    reserve: bool = True,
    gpus: Ints | None = None,
) -> Decisions:
    """One pass over `waiting`, in their order.

    `free` are the slots that no job has, `gpus` the GPUs (None: all); `usable` the hosts that take jobs;
    `caps` the slots that each limit leaves.
    """
    unused = hosts.gpus if gpus is None else gpus
    turn = _Pass(hosts, free, unused, usable, running, now, dict(caps or {}), reserve)
    for job in waiting:
        turn.consider(job)
    return turn.made


class _Pass:
    def __init__(
        self,
        hosts: Hosts,
        free: Ints,
        gpus: Ints,
        usable: Bools,
        running: Sequence[Running],
        now: float,
        caps: dict[str, int],
        reserve: bool,
    ) -> None:
        self.made = Decisions()
        self._hosts, self._usable, self._now, self._caps = hosts, usable, now, caps
        self._free = np.where(usable, free, 0)
        self._left = int(self._free.sum())
        self._reserve = reserve
        self._running = list(running)
        self._soon = np.zeros_like(self._free)  # slots of jobs that have been told to end
        self._gpus, self._soon_gpus = gpus.copy(), np.zeros_like(gpus)  # the same of GPUs
        for job in running:
            if job.ending:
                self._add_soon(job)
        self._gains: dict[tuple[frozenset[str], bool], tuple[Ints, Ints, list[Running]]] = {}

    def consider(self, job: Waiting) -> None:
        """Start it, have others make room for it, reserve slots for it, or let it wait."""
        for cap in job.caps:
            if self._caps.get(cap, job.demand.slots) < job.demand.slots:
                self.made.blocked[job.id] = cap
                return
        if job.fixed is not None:
            if job.holds:
                self.made.starts.append((job.id, job.fixed))
            elif self._fits(job.fixed, self._open_to(job, self._free)):
                self._start(job, job.fixed)
            return
        found = None
        if self._left >= job.demand.slots:
            found = self._place(job, self._free, self._gpus)
        if found is not None:
            self._start(job, found)
        elif not self._make_room(job) and self.made.reservation is None and self._reserve:
            self.made.reservation = self._reserved(job)

    def _place(self, job: Waiting, slots: Ints, gpus: Ints, last: Bools | None = None) -> Placement | None:
        """The hosts for a job of these slots and GPUs, such that it does not delay the job that some are
        reserved for."""
        kept = self.made.reservation
        if kept is not None and job.demand.gpus and not self._is_before(job, kept):
            gpus = np.minimum(gpus, kept.gpus)
        return place(self._hosts, self._open_to(job, slots), job.demand, last, gpus)

    def _open_to(self, job: Waiting, slots: Ints) -> Ints:
        """Those of `slots` that a job may take without delaying the job that slots are reserved for."""
        kept = self.made.reservation
        return slots if kept is None or self._is_before(job, kept) else np.minimum(slots, kept.spare)

    def _is_before(self, job: Waiting, kept: Reservation) -> bool:
        """Return whether a job may use what is reserved, as it ends in time."""
        return job.backfill and self._now + job.limit_s <= kept.start

    @staticmethod
    def _fits(placement: Placement, slots: Ints) -> bool:
        return bool((slots[placement.hosts] >= placement.taken).all())

    def _start(self, job: Waiting, found: Placement) -> None:
        self.made.starts.append((job.id, found))
        self._take(job, found)

    def _take(self, job: Waiting, found: Placement) -> None:
        """Take the slots from what is free now and, for the rest, from what is free soon."""
        at = found.hosts
        now = np.minimum(self._free[at], found.taken)
        self._free[at] -= now
        self._soon[at] -= np.minimum(self._soon[at], found.taken - now)
        self._left -= int(now.sum())
        first = np.minimum(self._gpus[at], job.demand.gpus)
        self._gpus[at] -= first
        self._soon_gpus[at] -= np.minimum(self._soon_gpus[at], job.demand.gpus - first)
        kept = self.made.reservation
        if kept is not None and self._now + job.limit_s > kept.start:
            kept.spare[at] = np.maximum(kept.spare[at] - found.taken, 0)
            kept.gpus[at] = np.maximum(kept.gpus[at] - job.demand.gpus, 0)
        for cap in job.caps:
            if cap in self._caps:
                self._caps[cap] -= job.demand.slots
        end, gpus = self._now + job.limit_s, job.demand.gpus
        own = Running(id=job.id, queue="", placement=found, end=end, started=self._now, gpus=gpus)
        self._running.append(own)

    def _make_room(self, job: Waiting) -> bool:
        """Return whether the job fits once other jobs have ended or made room; then it gets these slots."""
        gain, gpus, candidates = self._gain(job)
        soon, unused = self._free + self._soon, self._gpus + self._soon_gpus
        found = self._place(job, soon + gain, unused + gpus, gain > 0)
        if found is None:
            return False
        needed, lacking = np.zeros_like(soon), np.zeros_like(soon)
        needed[found.hosts] = np.maximum(found.taken - soon[found.hosts], 0)
        lacking[found.hosts] = np.maximum(job.demand.gpus - unused[found.hosts], 0)
        for victim in candidates:
            at = victim.placement.hosts
            got, more = np.minimum(needed[at], victim.placement.taken), np.minimum(lacking[at], victim.gpus)
            if got.any() or more.any():
                needed[at] -= got
                lacking[at] -= more
                self.made.victims[victim.id] = job.id
                self._add_soon(victim)
        if needed.any() or lacking.any():  # no host is taken by more than one job's gain: this cannot be
            raise AssertionError(f"no room for job {job.id} although its victims make it")
        self._gains.clear()
        self._take(job, found)
        return True

    def _add_soon(self, job: Running) -> None:
        at = job.placement.hosts
        self._soon[at] += np.where(self._usable[at], job.placement.taken, 0)
        self._soon_gpus[at] += np.where(self._usable[at], job.gpus, 0)

    def _gain(self, waiting: Waiting) -> tuple[Ints, Ints, list[Running]]:
        """The slots and GPUs that preemption can free now, and the jobs that have them, in the order of their
        turn."""
        preempts, gpus = waiting.preempts, waiting.demand.gpus > 0
        found = self._gains.get((preempts, gpus))
        if found is None:
            jobs = [
                job
                for job in self._running
                if _yields(job, preempts, gpus=gpus)
                and not job.ending
                and job.safe_until <= self._now
                and job.id not in self.made.victims
            ]
            jobs.sort(key=lambda job: (job.priority, -job.started, -job.id))
            slots, devices = np.zeros_like(self._free), np.zeros_like(self._free)
            for job in jobs:
                slots[job.placement.hosts] += job.placement.taken
                devices[job.placement.hosts] += job.gpus
            usable = self._usable
            found = np.where(usable, slots, 0), np.where(usable, devices, 0), jobs
            self._gains[preempts, gpus] = found
        return found

    def _reserved(self, job: Waiting) -> Reservation | None:
        """The earliest start of a job that has to wait; None: it can never start."""
        slots, gpus = self._free + self._soon, self._gpus + self._soon_gpus
        idle = slots > 0
        for time, together in groupby(
            sorted(self._releases(job), key=attrgetter("time")), attrgetter("time")
        ):
            for release in together:
                at = release.job.placement.hosts
                slots[at] += np.where(self._usable[at], release.job.placement.taken, 0)
                gpus[at] += np.where(self._usable[at], release.job.gpus, 0)
            if time == NEVER or int(slots.sum()) < job.demand.slots:
                continue
            found = place(self._hosts, slots, job.demand, idle, gpus)
            if found is not None:
                slots[found.hosts] -= found.taken
                gpus[found.hosts] -= job.demand.gpus
                return Reservation(job.id, time, found, slots, gpus)
        return None

    def _releases(self, job: Waiting) -> Iterable[_Release]:
        for running in self._running:
            if running.ending or running.id in self.made.victims:
                continue  # its slots are free soon
            end = max(self._now, running.end)
            if _yields(running, job.preempts, gpus=job.demand.gpus > 0):
                end = max(self._now, min(end, running.safe_until))
            yield _Release(end, running)


def _yields(job: Running, preempts: frozenset[str], *, gpus: bool) -> bool:
    """Return whether a job makes room for one that preempts these queues, and wants `gpus`: only GPU jobs
    preempt GPU jobs, and only such as may start again elsewhere."""
    return job.queue in preempts and (not job.gpus or (gpus and job.movable))


@dataclass(frozen=True, slots=True)
class _Release:
    time: float
    job: Running
