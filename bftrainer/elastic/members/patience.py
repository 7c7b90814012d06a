"""The time that a member waits for another: longer while one reports that it is busy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from time import monotonic

TIMEOUT_S = 120.0
"""Seconds that members wait for a silent one, by default."""


class Patience:
    """One member's waits for others. `timeout_s`: its longest wait for one not known to be busy."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._busy: dict[str, float] = {}  # node -> until when at most
        self._ended = float("-inf")  # when one of them was busy for the last time

    def heard(self, node: str, seconds: float) -> None:
        """A member is busy for `seconds` at most; 0: not any more."""
        with self._lock:
            if seconds > 0:
                self._busy[node] = monotonic() + seconds
            elif self._busy.pop(node, None) is not None:
                self._ended = monotonic()

    def keep(self, nodes: Collection[str]) -> None:
        """Only these are members any more."""
        with self._lock:
            self._busy = {node: until for node, until in self._busy.items() if node in nodes}

    def is_over(self, began: float) -> bool:
        """True if an exchange that began then (`time.monotonic()`) has waited for too long."""
        with self._lock:
            now = monotonic()
            calm = max([began, self._ended, *(min(until, now) for until in self._busy.values())])
            return now - calm > self.timeout_s


SHORT_S = 5.0
"""Seconds up to which being busy is not reported."""


class Occupied:
    """A busy time from `begin` to `end`. After a while, short beside `timeout_s`, for which the others wait
    anyway, it calls `tell` with its longest duration (s), and with 0 when it is over."""

    def __init__(self, tell: Callable[[float], None], timeout_s: float) -> None:
        self._tell, self._after_s = tell, min(SHORT_S, timeout_s / 4)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._is_told = False

    def begin(self, seconds: float) -> None:
        """This member is busy from now on, for `seconds` at most."""
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
