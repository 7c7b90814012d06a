"""The daemon's clock: it never jumps, whatever is done to the clock of the machine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from bftrainer.ports import Clock
from bftrainer.telemetry.telemetry import Telemetry

CORRECTION = 0.1
"""Share by which our seconds differ, after the machine's clock was set, until both agree again."""
DAY_S = 86_400.0
AGREED_S = 600.0
"""Seconds that the machine's clock must be ahead by over a day to count as right: its time is then taken at
once. A shorter glitch moves nothing: what is older than `keep_events_days` would be deleted for it."""
TOLD_S = 60.0
"""Seconds of difference from which on it is told."""
CHECK_S = 5.0
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
        self._ahead_s = 0.0  # for how long the machine's clock has been ahead by over a day

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
        self._ahead_s = self._ahead_s + passed if behind > DAY_S else 0.0
        self._told += behind if self._ahead_s >= AGREED_S else min(most, max(-most, behind))
        return self._told


async def watch(clock: Clock, telemetry: Telemetry) -> None:
    """Tell, for ever, while the machine's clock differs from ours by over `TOLD_S`."""
    while True:
        telemetry.condition("clock", difference(clock.behind_s()))
        await asyncio.sleep(CHECK_S)


def difference(behind_s: float) -> str:
    """Return what is wrong if our clock is `behind_s` behind the machine's; empty: nothing."""
    if abs(behind_s) < TOLD_S:
        return ""
    amount = f"{abs(behind_s) / DAY_S:.1f} days" if abs(behind_s) > DAY_S else f"{abs(behind_s):.0f} s"
    return (
        f"the machine's clock was set: it is {amount} {'ahead of' if behind_s > 0 else 'behind'} the "
        f"daemon's, which follows by {CORRECTION:.0%}; if it is right and that takes too long, start the "
        "daemon anew"
    )
