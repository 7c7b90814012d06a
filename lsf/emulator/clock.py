"""Sources of the emulated LSF's time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Unix time in seconds."""

    def now(self) -> float:
        """The present time, which never goes back."""
        ...

    def wait_s(self, until: float) -> float | None:
        """Return how long to wait in real seconds until a time comes; None: it does not come by itself."""
        ...


class RealClock:
    """The machine's time, without the jumps of its clock."""

    def __init__(self) -> None:
        """It starts with the machine's clock."""
        self._ahead = time.time() - time.monotonic()

    def now(self) -> float:
        """The present time."""
        return time.monotonic() + self._ahead

    def wait_s(self, until: float) -> float | None:
        """Return how long to wait until a time comes."""
        return max(0.0, until - self.now())


class VirtualClock:
    """Time that stands still until it is moved."""

    def __init__(self, now: float) -> None:
        """It stands at `now`."""
        self._now = now

    def now(self) -> float:
        """Return the time."""
        return self._now

    def wait_s(self, until: float) -> float | None:
        """It does not come by itself."""
        return None

    def move(self, to: float) -> None:
        """Move it, never back."""
        self._now = max(self._now, to)
