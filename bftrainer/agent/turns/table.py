"""Turns to compute on one device: a holder, a line of those that wait, and a limit. Pure.

After Jigsaw (Kumar et al. 2021), where trainers interleave on a device by iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

LEAST_S = 2.0
"""Least seconds of a turn before a worker that lets another wait loses it."""
TIMES = 10.0
"""Also the least turn, in multiples of the worker's longest yet."""
FIRST_S = 60.0
"""A worker's first turn: programs are compiled then, and devices are set up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTurns:
    """The workers that compute on one device, by numbers that their connections have. Times are in seconds.

    Attributes:
        holder: Whose turn it is; None: nobody's.
        since: When its turn began.
        waited_for: Since when it has let others wait; None: nobody waits.
        waiting: Those that wait, in the order in which they get their turns.
        longest: How long each worker's longest turn was.
        free: Those that compute without turns, as they are about to leave.
    """

    holder: int | None = None
    since: float = 0.0
    waited_for: float | None = None
    waiting: tuple[int, ...] = ()
    longest: Mapping[int, float] = field(default_factory=dict)
    free: frozenset[int] = frozenset()

    def may_compute(self, worker: int) -> bool:
        """True if a worker that has asked for its turn need not wait."""
        return worker == self.holder or worker in self.free

    def take(self, worker: int, now: float) -> DeviceTurns:
        """A worker asks for its turn."""
        if self.may_compute(worker) or worker in self.waiting:
            return self
        if self.holder is None:
            return replace(self, holder=worker, since=now)
        return replace(
            self,
            waiting=(*self.waiting, worker),
            waited_for=now if self.waited_for is None else self.waited_for,
        )

    def give(self, worker: int, now: float) -> DeviceTurns:
        """A worker has done with its turn; nothing changes if it has lost it before."""
        if worker != self.holder:
            return self
        longest = max(now - self.since, self.longest.get(worker, 0.0))
        return replace(self, longest={**self.longest, worker: longest})._next(now)

    def gone(self, worker: int, now: float) -> DeviceTurns:
        """A worker has ended."""
        left = replace(
            self,
            waiting=tuple(other for other in self.waiting if other != worker),
            longest={other: held_s for other, held_s in self.longest.items() if other != worker},
            free=self.free - {worker},
        )
        if worker == self.holder:
            return left._next(now)
        return left if left.waiting else replace(left, waited_for=None)

    def hurry(self, worker: int, now: float) -> DeviceTurns:
        """A worker is about to leave: it waits for nobody any more, until `calm`."""
        rest = tuple(other for other in self.waiting if other != worker)
        own = replace(self, waiting=rest, free=self.free | {worker})
        if worker == self.holder:
            return own._next(now)
        return own if rest else replace(own, waited_for=None)

    def calm(self, worker: int) -> DeviceTurns:
        """A worker stays after all, or has come to its new place: it takes turns again."""
        return replace(self, free=self.free - {worker})

    @property
    def due(self) -> float | None:
        """Time at which the holder loses its turn; None if nobody waits."""
        if self.holder is None or self.waited_for is None:
            return None
        longest = self.longest.get(self.holder)
        limit_s = FIRST_S if longest is None else max(LEAST_S, TIMES * longest)
        return self.waited_for + limit_s

    def overdue(self, now: float) -> DeviceTurns:
        """The turns at `now`: a holder whose time is up has lost its turn to the next."""
        return self if self.due is None or now < self.due else self._next(now)

    def _next(self, now: float) -> DeviceTurns:
        first, rest = self.waiting[:1], self.waiting[1:]
        return replace(
            self,
            holder=first[0] if first else None,
            since=now,
            waiting=rest,
            waited_for=now if rest else None,
        )
