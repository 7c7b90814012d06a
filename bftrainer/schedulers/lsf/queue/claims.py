"""Finds pending main jobs that could start now if we gave up hosts. Pure.

LSF tells how many slots a job asks for, not which hosts it may have. So this counts whole hosts, in the order
of queues' priorities and of submission; a job that needs less than a host may start beside others. What it
cannot know (limits of users, wishes for hosts) makes a claim
that leads to no start; such a claim lapses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bftrainer.model.machine import Claim
from bftrainer.schedulers.lsf.rows import LsfJobRow, QueueRow
from bftrainer.schedulers.shared.claims import Claims, Known

MOST_JOBS = 5000
"""Pending jobs that are tried at a poll, at most."""
OTHERWISE = re.compile(
    r"dependency|limit|hold|held|suspended|begin time|start time|dispatch window|run window|inactive|"
    r"advance reservation|licen[cs]e|resume|pre-?exec|requeue|throttl",
    re.IGNORECASE,
)
"""Reasons of a job that hosts would not help."""
ALONE = re.compile(r"exclusive", re.IGNORECASE)
"""Reasons of a job that shares no host."""
SHARES_S = 30.0
"""A job that fits on a host beside others should start there within this time, some turns of LSF. After that
it is taken to want a host of its own, or one without others' memory and GPUs."""


def may_start(job: LsfJobRow) -> bool:
    """Return whether hosts may be all that a job waits for."""
    return job.state == "PEND" and job.slots > 0 and not OTHERWISE.search(job.reason)


def in_order(jobs: Iterable[LsfJobRow], queues: Mapping[str, QueueRow]) -> list[LsfJobRow]:
    """The jobs in the order in which LSF tries to start them, as far as we know."""

    def number(job: LsfJobRow) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"[0-9]+", job.id))

    def priority(job: LsfJobRow) -> int:
        queue = queues.get(job.queue)
        return queue.priority if queue else 0

    return sorted(jobs, key=lambda job: (-priority(job), number(job)))


def hosts_of(job: LsfJobRow, slots: int, launch_slots: int) -> int:
    """Return the whole hosts of `slots` slots that a job asks for, without its slots on a launch host."""
    return max(1, -(-max(1, job.slots - launch_slots) // max(1, slots)))


def claims(
    jobs: Iterable[LsfJobRow],
    queues: Mapping[str, QueueRow],
    free: Mapping[str, int],
    held: Mapping[str, int],
    *,
    slots: int,
    launch_slots: int,
    known: Known,
    now: float,
    spare: Iterable[int] = (),
) -> Claims:
    """Return what the jobs need of `held` hosts, ours, besides those that are `free` and the `spare` slots of
    hosts on which main jobs use others. Hosts come with their slots; most of the machine have `slots`."""
    room = _Room(slots, Counter(free.values()), Counter(held.values()), list(spare))
    large = {least: _with_slots(held, least) for least in {0, *held.values()}}
    found: list[Claim] = []
    ready, users = set(), {}
    able = [
        job for job in jobs if may_start(job) and job.id not in known.lapsed and job.user not in known.doubted
    ]
    for job in in_order(able, queues)[:MOST_JOBS]:
        waited_s = now - known.ready.get(job.id, now)
        shares = waited_s < SHARES_S and not ALONE.search(job.reason)
        given = room.take(max(1, job.slots - launch_slots), shares=shares)
        if given is None:
            continue  # it waits for others; a smaller one behind it may be backfilled
        ready.add(job.id)
        users[job.id] = job.user
        if given.hosts:
            found.append(Claim(job=job.id, nodes=large[given.least], count=given.hosts))
    return Claims(tuple(found), ready=frozenset(ready), users=users)


def _with_slots(hosts: Mapping[str, int], least: int) -> frozenset[str]:
    return frozenset(name for name, slots in hosts.items() if slots >= least)


@dataclass(frozen=True, slots=True)
class _Given:
    """A number of our hosts, each with at least `least` slots; 0 hosts: it needs no pilot's host."""

    hosts: int
    least: int


@dataclass
class _Room:
    """Resources left for the next job: free hosts and ours, counted by their slots, and slots on hosts where
    other jobs use the rest. Most hosts have `usual` slots."""

    usual: int
    free: Counter[int]
    held: Counter[int]
    spare: list[int]

    def take(self, wanted: int, *, shares: bool) -> _Given | None:
        """Take slots for a job, on hosts that others use, too, if it `shares`; None if there is not
        enough."""
        rest = wanted % max(1, self.usual)
        if shares and wanted == rest and (fits := [many for many in self.spare if many >= wanted]):
            self._put(min(fits), wanted)
            return _Given(0, 0)
        given = self._whole(wanted)
        if given is None:
            return self._anywhere(wanted)
        if shares and rest:
            self.spare.append(self.usual - rest)
        return given

    def _whole(self, wanted: int) -> _Given | None:
        """Take as many hosts as a job needs that uses as many slots of each as most hosts have."""
        need, least = -(-wanted // max(1, self.usual)), min(wanted, self.usual)
        free, held = (
            sum(many for slots, many in stock.items() if slots >= least) for stock in (self.free, self.held)
        )
        if need > free + held:
            return None
        given = max(0, need - free)
        _remove(self.free, need - given, least)
        smallest = _remove(self.held, given, least)
        return _Given(given, smallest)

    def _anywhere(self, wanted: int) -> _Given | None:
        """Take the largest hosts that there are, if a job can use slots wherever they are."""
        stocks = (self.free, self.held)
        if wanted <= self.usual or wanted > sum(
            slots * many for stock in stocks for slots, many in stock.items()
        ):
            return None
        given, least = 0, 0
        for stock in stocks:
            for slots in sorted(filter(None, stock), reverse=True):
                taken = min(stock[slots], -(-max(0, wanted) // slots))
                stock[slots] -= taken
                wanted -= taken * slots
                if taken and stock is self.held:
                    given, least = given + taken, slots
        return _Given(given, least)

    def _put(self, many: int, wanted: int) -> None:
        self.spare.remove(many)
        self.spare.append(many - wanted)


def _remove(stock: Counter[int], count: int, least: int) -> int:
    """Remove hosts with `least` slots or more, the smallest first; returns the slots of the smallest, 0 if
    none is removed."""
    smallest = 0
    for slots in sorted(slots for slots, many in stock.items() if many and slots >= least):
        taken = min(count, stock[slots])
        stock[slots] -= taken
        count -= taken
        smallest = smallest or (slots if taken else 0)
    return smallest
