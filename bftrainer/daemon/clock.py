"""The daemon's clock: it never jumps, whatever is done to the clock of the machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

CORRECTION = 0.1
"""After the machine's clock was set, a second of ours is so much longer or shorter until both agree again."""
AT_ONCE_S = 86_400.0
"""If the machine's clock is ahead by more than this, it was plainly wrong: its time is taken at once."""
AGREE_S = 1.0
"""Clocks that differ by less than this agree."""


def _since_boot() -> float:
    """A clock that nobody sets, and that goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WallClock:
    """`ports.Clock` of this machine: the Unix time when the daemon began, and from then on a steady clock.

    If the machine's clock is set, back or forward, this one goes 10 % slower or faster until both agree. So
    no time-out strikes early, and none stalls. Safe to use from several threads.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = _since_boot
    ) -> None:
        self._wall, self._steady = wall, steady
        self._lock = threading.Lock()
        self._seen, self._told = steady(), wall()

    def now(self) -> float:
        """The present time, in seconds since the Unix epoch; it never goes back."""
        with self._lock:
            return self._now(self._wall())

    def behind_s(self) -> float:
        """See `ports.Clock.behind_s`."""
        with self._lock:
            wall = self._wall()
            behind = wall - self._now(wall)
        return behind if abs(behind) >= AGREE_S else 0.0

    def _now(self, wall: float) -> float:
        seen = self._steady()
        passed = max(0.0, seen - self._seen)
        self._seen = seen
        self._told += passed
        behind, most = wall - self._told, CORRECTION * passed
        self._told += behind if behind > AT_ONCE_S else min(most, max(-most, behind))
        return self._told
