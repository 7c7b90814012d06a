"""Timers that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class Due:
    """A call that is due at a time, among others."""

    at: float
    do: Callable[[], None]
    among: list[Due]

    def cancel(self) -> None:
        if self in self.among:
            self.among.remove(self)


class Timers:
    """Time, and what is to be called when. `later` and `now` are as for `launch.deadlines.TimeLimits`."""

    def __init__(self) -> None:
        self._now = 0.0
        self._due: list[Due] = []

    def now(self) -> float:
        return self._now

    @property
    def waiting(self) -> int:
        """How many calls are due later."""
        return len(self._due)

    def later(self, delay_s: float, do: Callable[[], None]) -> Due:
        due = Due(self._now + delay_s, do, self._due)
        self._due.append(due)
        return due

    def advance(self, seconds: float) -> None:
        """Let time pass, and call what is due in its order."""
        end = self._now + seconds
        while due := [one for one in self._due if one.at <= end]:
            first = min(due, key=lambda one: one.at)
            self._due.remove(first)
            self._now = first.at
            first.do()
        self._now = end
