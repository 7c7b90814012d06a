"""Timers that the test moves."""

from __future__ import annotations

from collections.abc import Callable


class Timers:
    """Time, and what is to be called when. `later` and `now` are as for `launch.deadlines.TimeLimits`."""

    def __init__(self) -> None:
        self._now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def later(self, delay_s: float, do: Callable[[], None]) -> None:
        self._due.append((self._now + delay_s, do))

    def advance(self, seconds: float) -> None:
        """Let time pass, and call what is due in its order."""
        end = self._now + seconds
        while due := [one for one in self._due if one[0] <= end]:
            first = min(due, key=lambda one: one[0])
            self._due.remove(first)
            self._now = first[0]
            first[1]()
        self._now = end
