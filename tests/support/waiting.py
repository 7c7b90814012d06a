"""Waiting for something to come true, instead of sleeping for as long as it usually takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LONG_S = 240.0
"""Nothing that happens at all takes so long, however slow and busy the machine is."""


def nothing() -> str:
    """No more to say than what was waited for."""
    return ""


def until(
    condition: Callable[[], object],
    what: str,
    *,
    seconds: float = LONG_S,
    every_s: float = 0.05,
    story: Callable[[], str] = nothing,
) -> None:
    """Return as soon as the condition holds.

    Raises:
        AssertionError: it did not within `seconds`; with `what` and what `story` returns.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}\n{story()}")
        time.sleep(every_s)


async def until_true(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return as soon as the condition holds; the event loop goes on meanwhile.

    Raises:
        TimeoutError: it did not within `seconds`.
    """
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
