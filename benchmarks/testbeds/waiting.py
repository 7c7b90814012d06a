"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.02


def until(ready: Callable[[], bool], timeout_s: float, every_s: float = POLL_S) -> bool:
    """Wait for a condition; whether it came true in time."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
