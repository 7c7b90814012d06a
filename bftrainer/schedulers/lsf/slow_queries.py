"""Answers that change slowly: asked for now and then, beside the polls, which never wait for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Found = TypeVar("Found")


class Rarely(Generic[Found]):
    """Caches the result of `ask`, which is called again every `every_s`; raises nothing.

    Only the very first answer is waited for. A main job that waits for our node is seen by the next poll,
    however long LSF takes to say what its backfill windows are.
    """

    def __init__(self, ask: Callable[[], Awaitable[Found]], every_s: float, first: Found) -> None:
        self._ask, self._every_s, self._found = ask, every_s, first
        self._next = 0.0  # on the monotonic clock
        self._known = False
        self._asking: asyncio.Task[None] | None = None

    async def last(self) -> Found:
        """The last answer; a new one is asked for if it is time, and none is being asked for."""
        now = time.monotonic()
        if now >= self._next and (self._asking is None or self._asking.done()):
            self._next = now + self._every_s
            self._asking = asyncio.create_task(self._again())
        if not self._known and self._asking is not None:
            await asyncio.shield(self._asking)
        return self._found

    def close(self) -> None:
        """Let go of a question that is under way."""
        if self._asking is not None:
            self._asking.cancel()

    async def _again(self) -> None:
        self._found = await self._ask()
        self._known = True
