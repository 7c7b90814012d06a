"""Waiting for something to come true, instead of sleeping for as long as it usually takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LONG_S = 240.0
"""Nothing that happens at all takes so long, however slow and busy the machine is."""
FIRST_S, LAST_S, PART = 0.02, 0.2, 0.1
"""The pause between two looks at a condition: a part of the time that has been waited, within bounds. Asking
a daemon takes the processors from what the test waits for."""


def nothing() -> str:
    """No more to say than what was waited for."""
    return ""


def until(
    condition: Callable[[], object],
    what: str,
    *,
    seconds: float = LONG_S,
    every_s: float | None = None,
    story: Callable[[], str] = nothing,
) -> None:
    """Return soon after the condition holds. `every_s`: the pause between two looks, for what must be seen at
    once; without it they become rarer.

    Raises:
        AssertionError: it did not within `seconds`; with `what` and what `story` returns.
    """
    begun = time.monotonic()
    while not condition():
        waited = time.monotonic() - begun
        if waited > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}\n{story()}")
        time.sleep(every_s or min(max(FIRST_S, PART * waited), LAST_S))


async def until_true(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return as soon as the condition holds; the event loop goes on meanwhile.

    Raises:
        TimeoutError: it did not within `seconds`.
    """
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
