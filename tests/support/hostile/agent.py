"""A process that knows a pilot's secret and says to the daemon whatever it likes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bftrainer.agent.connection import DaemonConnection
from bftrainer.agent.outbox import AgentOutbox
from tests.support.waiting import until_true


class _Anything(AgentOutbox):
    """Sends whatever it is told, at once, and merges and drops nothing."""

    def tell(self, message: Any) -> None:
        self._queue.append(message)
        self._waiting.set()

    def empty(self) -> bool:
        """Whether all has been sent."""
        return not self._queue


class PosingAgent:
    """Speaks for a node whose pilot's tag and secret it knows; comes back whenever it is thrown out.

    `workers` is what it says to run there. Orders are kept, and not obeyed.
    """

    def __init__(self, socket: Path, node: str, tag: str, secret: str, workers: list[Any]) -> None:
        self._workers = workers
        self.heard: list[dict[str, Any]] = []
        self.connection = DaemonConnection(
            node=node, tag=tag, secret=secret, daemon=str(socket), orphan_s=1e9
        )
        self.connection._outbox = self._outbox = _Anything()

    def running(self) -> list[Any]:
        """What the hello lists."""
        return self._workers

    def devices(self) -> None:
        """It does not say what it has."""

    def obey(self, order: dict[str, Any]) -> None:
        """Keep an order."""
        self.heard.append(order)

    async def give_up(self) -> None:
        """Nothing: the next attempt follows."""

    def say(self, message: Any) -> None:
        """Send any message that JSON can hold, sealed as the daemon expects it."""
        self._outbox.tell(message)

    async def sent(self, seconds: float = 30.0) -> None:
        """Wait until all that was said has been sent, or given up."""
        await until_true(lambda: self._outbox.empty() or not self.connection.connected, seconds)


@contextlib.asynccontextmanager
async def posing(
    socket: Path, node: str, tag: str, secret: str, workers: list[Any] | None = None
) -> AsyncIterator[PosingAgent]:
    """An agent that the daemon takes for that of the node; it may be thrown out again at any moment."""
    agent = PosingAgent(socket, node, tag, secret, workers or [])
    keeping = asyncio.create_task(agent.connection.keep(agent))
    try:
        await until_true(lambda: agent.connection.connected)
        yield agent
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
