"""Bounds the messages or requests of one client or agent in a time, and its part of the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

PART = 4000
"""Bytes per further token: a message costs one token, and one more for each of these parts."""
SLICE_S = 0.005
"""Seconds of work after which the event loop does something else, for as long."""


class Bucket:
    """Tokens that come back at `rate` a second, `burst` at most. `clock` is monotonic, in seconds."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self._burst, self._clock = rate, burst, clock
        self._level, self._at = burst, clock()
        self._short_since: float | None = None

    def take(self, cost: float = 1.0) -> float:
        """Take tokens, though there may be too few. Returns for how many seconds to wait then, else 0."""
        now = self._fill()
        self._level -= cost
        if self._level < 0 and self._short_since is None:
            self._short_since = now
        return max(0.0, -self._level / self.rate)

    def take_if_enough(self) -> float:
        """Take a token unless there is none. Returns for how many seconds to wait then, else 0."""
        self._fill()
        if self._level < 1:
            return (1 - self._level) / self.rate
        self._level -= 1
        return 0.0

    def short_s(self) -> float:
        """For how long there have been too few tokens, without a time of rest; 0: there are enough."""
        now = self._fill()
        return 0.0 if self._short_since is None else now - self._short_since

    @property
    def is_short(self) -> bool:
        """True if there were too few, and have not been enough for long since."""
        self._fill()
        return self._short_since is not None

    @property
    def full(self) -> bool:
        """True if nothing has been taken for long enough."""
        self._fill()
        return self._level >= self._burst

    def _fill(self) -> float:
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self.rate)
        self._at = now
        if self._level > self._burst / 2:
            self._short_since = None
        return now


class Turns:
    """Turns on the event loop, in the order in which they are asked for, one at a time. What is done in them
    takes at most half of the loop's time, `SLICE_S` at a time, however many ask."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._spent_s = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Around a piece of work that does not wait."""
        async with self._lock:
            if self._spent_s >= SLICE_S:
                rest_s, self._spent_s = self._spent_s, 0.0
                await asyncio.sleep(rest_s)
            began = time.perf_counter()
            try:
                yield
            finally:
                self._spent_s += time.perf_counter() - began
