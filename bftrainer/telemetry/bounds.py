"""Which bounds users, clients and agents have hit lately, how often, and which of them most."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

MINUTE_S = 60.0
MINUTES = 60
"""Hits are remembered for so many minutes: an hour."""
NAMED = 8
"""So many of those that hit a bound are told apart in each minute; the rest count as others."""
OTHERS = "others"


@dataclass(slots=True)
class _Minute:
    """The hits of one bound in one minute, by what hit it."""

    begin: float
    by: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Hits:
    """How often a bound was hit in the last hour, and what hit it most often (empty: nobody says)."""

    bound: str
    times: int
    most_by: str

    @property
    def text(self) -> str:
        """For admins, in one line."""
        times = "once" if self.times == 1 else f"{self.times:,} times"
        return f"{self.bound}: {times}" + (f", most by {self.most_by}" if self.most_by else "")


class Bounds:
    """Counts hits by the minute; memory is bounded, whatever hits. Safe to use from several threads.

    The names of bounds come from the program, never from users.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._minutes: dict[str, deque[_Minute]] = {}
        self._lock = threading.Lock()

    def hit(self, bound: str, by: str, times: int = 1) -> None:
        """Count that a bound was hit `times` by a user, node or address; empty: not known which."""
        now = self._clock()
        with self._lock:
            minutes = self._minutes.setdefault(bound, deque(maxlen=MINUTES))
            if not minutes or now >= minutes[-1].begin + MINUTE_S:
                minutes.append(_Minute(now))
            counted = minutes[-1].by
            known = by in counted or len(counted) < NAMED
            counted[by if known else OTHERS] += times

    def last_hour(self) -> list[Hits]:
        """The bounds that were hit in the last hour, by name."""
        oldest = self._clock() - MINUTES * MINUTE_S
        found = []
        with self._lock:
            for bound, minutes in sorted(self._minutes.items()):
                total: Counter[str] = Counter()
                for minute in minutes:
                    if minute.begin > oldest:
                        total.update(minute.by)
                if total:
                    named = Counter({by: n for by, n in total.items() if by not in ("", OTHERS)})
                    most = named.most_common(1)
                    found.append(Hits(bound, total.total(), most[0][0] if most else ""))
        return found
