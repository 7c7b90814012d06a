"""Measures how long main jobs wait, as polls show it, and whether our nodes can be the reason.

A job's wait begins when nothing but the scheduler and we keep it from starting: at its submission, or at the
last poll at which it still waited for other jobs, a date or a limit. It is affected by us if nodes that we
held were claimed for it, or if it started on nodes that were ours while it waited. All others tell what the
scheduler itself takes.

Not known: jobs that start and end between two polls, jobs that give up waiting, and jobs that could start on
our nodes without anybody seeing it; these count from the moment at which the scheduler takes the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Snapshot
from bftrainer.model.main_jobs import Affected, MainJob, MainStart

IN_VAIN_S = 30.0
"""Seconds after its last claim when a job that has not started has got nodes in vain. Nodes that take long
to be cleared add that time."""
REMEMBERED_S = 3600.0
"""Seconds for which it is remembered that a node was ours."""


@dataclass(slots=True)
class _Queued:
    """A job that could start, and does not yet."""

    since: float  # when its wait began, at the earliest
    fresh: bool
    could: bool = False  # whether only our nodes have kept it from starting
    claimed_at: float | None = None  # the last poll with a claim for it
    seen_s: float | None = None
    given: int = 0
    vacate_s: float | None = None


class MainJobs:
    """The main jobs of the polls so far. One call of `observe` a poll; it bounds what it remembers by what
    the poll shows."""

    def __init__(self) -> None:
        self._last: float | None = None  # the last poll
        self._queued: dict[str, _Queued] = {}
        self._waiting: frozenset[str] = frozenset()
        self._running: dict[str, float] = {}  # job -> the last poll that showed it running
        self._requeued: Counter[str] = Counter()
        self._held: dict[str, float] = {}  # node -> the poll until which it may have been ours
        self._ours: frozenset[str] = frozenset()  # the nodes that were at the last poll
        self._pilots: frozenset[str] = frozenset()  # nodes, or GPUs, that pilots had at the last poll

    def given_back(self, jobs: Collection[str], seconds: float) -> None:
        """The nodes that were claimed for these jobs have been given back, so long after the poll."""
        for job in jobs:
            if job in self._queued:
                self._queued[job].vacate_s = seconds

    def observe(self, snapshot: Snapshot, held: Collection[str], clearing_s: float = 0.0) -> list[MainStart]:
        """Take a poll in. `held` are the nodes that are ours as a whole, and those that are being given
        back, also in part; nodes are cleared within `clearing_s`. Returns the starts that it shows."""
        now, last = snapshot.time, self._last
        there = frozenset(pilot.node for pilot in snapshot.pilots if not pilot.pending)
        gone = map(node_of, self._pilots - there)  # since the last poll, maybe for a job that came after it
        self._held |= dict.fromkeys([*self._ours, *held, *gone], now)
        self._pilots, self._ours = there, frozenset(held)
        running = [job for job in snapshot.main if job.on]
        found = [
            self._start(job, now, last)
            for job in running
            if last is not None and job.job not in self._running
        ]
        starts = [start for start in found if start is not None]
        self._note_requeued(snapshot)
        self._running = {j: at for j, at in self._running.items() if now - at < REMEMBERED_S}
        self._running |= dict.fromkeys((job.job for job in running), now)
        starts += self._note_queued(snapshot, now, last, IN_VAIN_S + clearing_s)
        self._held = {node: at for node, at in self._held.items() if now - at < REMEMBERED_S}
        self._waiting, self._last = snapshot.waiting, now
        return starts

    def _start(self, job: MainJob, now: float, last: float) -> MainStart | None:
        """The start of a job that runs since the last poll; None if it is not known how long it waited."""
        started = _between(job.started, job.rounded_s, last, now)
        queued = self._queued.get(job.job) or self._queued.get(_array(job.job))
        if queued is not None:
            since, fresh = queued.since, queued.fresh
        elif not self._waiting.isdisjoint((job.job, _array(job.job))):
            since, fresh = last, False
        elif job.submitted is not None and job.submitted + job.rounded_s >= last:
            since, fresh = _between(job.submitted, job.rounded_s, last, started), True
        else:  # it was in the queue, and we have not seen it
            return None
        affected = Affected.NO
        if queued is not None and queued.claimed_at is not None:
            affected = Affected.CLAIMED
        elif any(self._held.get(node, -inf) > since for node in job.on):
            affected = Affected.TAKEN
        return MainStart(
            time=started,
            job=job.job,
            nodes=job.nodes,
            cores=job.cores,
            wait_s=max(0.0, started - since),
            queued_s=None if job.submitted is None else max(0.0, started - job.submitted),
            affected=affected,
            given=queued.given if queued else 0,
            seen_s=queued.seen_s if queued else None,
            vacate_s=queued.vacate_s if queued else None,
            requeued=self._requeued.pop(job.job, 0),
            fresh=fresh,
            on=job.on,
        )

    def _note_requeued(self, snapshot: Snapshot) -> None:
        for job in snapshot.waiting.intersection(self._running):  # many wait, few have just begun
            del self._running[job]
            self._requeued[job] += 1
        for job in [job for job in self._requeued if job not in snapshot.waiting]:
            del self._requeued[job]

    def _note_queued(
        self, snapshot: Snapshot, now: float, last: float | None, patience_s: float
    ) -> list[MainStart]:
        """Keep account of the jobs that could start. Returns those that got nodes in vain."""
        claimed: Counter[str] = Counter()
        for claim in snapshot.claims:
            claimed[claim.job] += claim.count
        could = {job.job: job for job in snapshot.main if not job.on}
        kept: dict[str, _Queued] = {}
        in_vain = []
        began = {_array(job.job) for job in snapshot.main if job.on and job.job not in could}
        queued = snapshot.waiting.intersection(self._queued)
        for job in sorted(queued.union(could, claimed)):
            entry = self._queued.get(job)
            if entry is None or (job in began and job in could):  # tasks of an array start one by one
                entry = self._queue(could.get(job), job, now, last)
            entry.could = entry.could or job in could
            if not entry.could:
                if job not in claimed:
                    continue
                entry.since = now  # nodes are cleared for it, and it still waits for others
            if job in claimed:
                if entry.claimed_at is None:
                    entry.seen_s = max(0.0, now - entry.since)
                entry.claimed_at, entry.given = now, max(entry.given, claimed[job])
            elif entry.claimed_at is not None and now - entry.claimed_at > patience_s:
                in_vain.append(_in_vain(job, entry, now))
                continue
            elif entry.claimed_at is None and job not in could:
                continue  # it waits for others again
            kept[job] = entry
        self._queued = kept
        return in_vain

    def _queue(self, shown: MainJob | None, job: str, now: float, last: float | None) -> _Queued:
        if job in self._waiting or last is None or shown is None or shown.submitted is None:
            return _Queued(since=now if last is None else last, fresh=False)
        submitted = _between(shown.submitted, shown.rounded_s, last, now)
        return _Queued(since=submitted, fresh=True)


def _in_vain(job: str, entry: _Queued, now: float) -> MainStart:
    return MainStart(
        time=now,
        job=job,
        nodes=entry.given,
        wait_s=now - entry.since,
        affected=Affected.IN_VAIN,
        given=entry.given,
        seen_s=entry.seen_s,
        vacate_s=entry.vacate_s,
    )


def _array(job: str) -> str:
    """The array that a job is a task of, or the job itself."""
    return job.partition("_")[0]


def _between(told: float | None, rounded_s: float, after: float, before: float) -> float:
    """A moment that was `told` rounded down, and that lies between two others: the middle of what is left."""
    low, high = max(after, told if told is not None else after), before
    if told is not None:
        high = min(before, told + rounded_s)
    return (low + high) / 2 if low <= high else min(max(after, told or after), before)
