"""Runs work in the event loop while the rest of the daemon does other things."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

AGAIN_S = 2.0


class Background:
    """Starts coroutines and keeps them alive until they are done."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the event loop, without waiting for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Until all that was started is done.

        Raises:
            Exception: what one of them has raised.
        """
        while self._tasks:
            await asyncio.gather(*self._tasks)
            await asyncio.sleep(0)  # of tasks that were done already, the callbacks have not run yet


async def end_others() -> None:
    """End all other tasks of this loop, and wait for them. What has not ended after `AGAIN_S` is cancelled
    again: asyncio waits for ever for a process that it was starting when all was cancelled at once."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=AGAIN_S)
