"""Tells the others that this member is busy, if that lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable

SHORT_S = 5.0
"""What takes no longer is not told."""


class Occupied:
    """From `begin` to `end`. `tell` is called with the seconds for which it may last at most, and with 0 when
    it is over; after a while that is short beside `timeout_s`, for which the others wait anyway."""

    def __init__(self, tell: Callable[[float], None], timeout_s: float) -> None:
        self._tell, self._after_s = tell, min(SHORT_S, timeout_s / 4)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._is_told = False

    def begin(self, seconds: float) -> None:
        """This member is busy from now on, for so many seconds at most."""
        timer = self._timer = threading.Timer(self._after_s, lambda: self._lasts(timer, seconds))
        timer.daemon = True
        timer.start()

    def end(self) -> None:
        """It is not any more."""
        with self._lock:
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            if self._is_told:
                self._is_told = False
                self._tell(0.0)

    def _lasts(self, timer: threading.Timer, seconds: float) -> None:
        with self._lock:
            if self._timer is timer:
                self._is_told = True
                self._tell(seconds)
