"""The clock of a replay."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class VirtualClock:
    """Implements `ports.Clock`: stands still until its `time` (Unix seconds) is set."""

    time: float

    def now(self) -> float:
        """The virtual time (Unix seconds)."""
        return self.time

    def behind_s(self) -> float:
        """See `ports.Clock.behind_s`: there is no other clock."""
        return 0.0
