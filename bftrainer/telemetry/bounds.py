"""Counts the bounds that users, clients and agents have hit lately, and who hit each most."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

MINUTE_S = 60.0
MINUTES = 60
"""Minutes for which hits are remembered: an hour."""
NAMED = 8
"""Names that hit a bound to tell apart in each minute; the rest count as others."""
OTHERS = "others"


@dataclass(slots=True)
class _Minute:
    """The hits of one bound in one minute, by what hit it."""

    begin: float
    by: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Hits:
    """Hits of a bound in the last hour, and what hit it most often (empty: nobody says)."""

    bound: str
    times: int
    most_by: str

    @property
    def text(self) -> str:
        """For admins, in one line."""
        times = "once" if self.times == 1 else f"{self.times:,} times"
        return f"{self.bound}: {times}" + (f", most by {self.most_by}" if self.most_by else "")


@dataclass(slots=True)
class _LastHour:
    """The hits of one bound: minute by minute, and the sum of all but the last, so that asking is quick."""

    minutes: deque[_Minute] = field(default_factory=deque)
    closed: Counter[str] = field(default_factory=Counter)

    def hit(self, now: float, by: str, times: int) -> None:
        """Count hits."""
        if not self.minutes or now >= self.minutes[-1].begin + MINUTE_S:
            if len(self.minutes) == MINUTES:
                self.minutes.popleft()
            self.minutes.append(_Minute(now))
            self._sum()
        counted = self.minutes[-1].by
        known = by in counted or len(counted) < NAMED
        counted[by if known else OTHERS] += times

    def total(self, now: float) -> Counter[str]:
        """The hits of the last hour by what hit; empty if there were none."""
        before = len(self.minutes)
        while self.minutes and self.minutes[0].begin <= now - MINUTES * MINUTE_S:
            self.minutes.popleft()
        if len(self.minutes) != before:
            self._sum()
        return self.closed + self.minutes[-1].by if self.minutes else Counter()

    def _sum(self) -> None:
        self.closed = Counter()
        for minute in list(self.minutes)[:-1]:
            self.closed.update(minute.by)


class BoundHits:
    """Counts hits by the minute; memory is bounded, whatever hits. Safe to use from several threads.

    The names of bounds come from the program, never from users.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_bound: dict[str, _LastHour] = {}
        self._lock = threading.Lock()

    def hit(self, bound: str, by: str, times: int = 1) -> None:
        """Count that a bound was hit `times` by a user, node or address; empty: not known which."""
        with self._lock:
            self._by_bound.setdefault(bound, _LastHour()).hit(self._clock(), by, times)

    def last_hour(self) -> list[Hits]:
        """The bounds that were hit in the last hour, by name."""
        now = self._clock()
        with self._lock:
            totals = {bound: hits.total(now) for bound, hits in self._by_bound.items()}
        return [_hits(bound, total) for bound, total in sorted(totals.items()) if total]


def _hits(bound: str, total: Counter[str]) -> Hits:
    named = ((times, by) for by, times in total.items() if by not in ("", OTHERS))
    return Hits(bound, total.total(), max(named, default=(0, ""))[1])
