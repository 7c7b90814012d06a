"""The daemon's clock."""

from __future__ import annotations

import time


class WallClock:
    """`ports.Clock` of this machine."""

    def now(self) -> float:
        """The present time, in seconds since the Unix epoch."""
        return time.time()
