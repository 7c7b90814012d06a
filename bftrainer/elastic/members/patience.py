"""How long a member waits for another: longer while one has said that it is busy."""

from __future__ import annotations

import threading
from collections.abc import Collection
from time import monotonic

TIMEOUT_S = 120.0
"""How long members wait for one that says nothing, by default."""


class Patience:
    """Of one member with the others. `timeout_s`: how long it waits for one that is not known to be busy."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._busy: dict[str, float] = {}  # node -> until when at most
        self._ended = float("-inf")  # when one of them was busy for the last time

    def heard(self, node: str, seconds: float) -> None:
        """A member is busy for so many seconds at most; 0: not any more."""
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
        """Whether an exchange that began then (`time.monotonic()`) has waited for too long."""
        with self._lock:
            now = monotonic()
            calm = max([began, self._ended, *(min(until, now) for until in self._busy.values())])
            return now - calm > self.timeout_s
