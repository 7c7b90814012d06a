"""The queue of texts for an agent: bounded, as an agent may not read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(slots=True)
class Size:
    """Bytes that wait for all agents together."""

    bytes: int = 0


class Outbox:
    """Texts for one agent in their order, at most `most` bytes of them, which count in `together`, too."""

    def __init__(self, most: int, together: Size) -> None:
        self._most, self._together = most, together
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self.bytes = 0
        """The size of what waits."""

    def put(self, text: str) -> bool:
        """Add a text; False: there is no room for it. An empty outbox has room for any."""
        if self.bytes and self.bytes + len(text) > self._most:
            return False
        self._count(len(text))
        self._queue.put_nowait(text)
        return True

    async def get(self) -> str:
        """Wait for the first text. It counts until it is `sent`."""
        return await self._queue.get()

    def sent(self, text: str) -> None:
        """This text is on its way."""
        self._count(-len(text))

    def close(self) -> None:
        """Nothing of it will be sent any more."""
        self._count(-self.bytes)

    def _count(self, more: int) -> None:
        self.bytes += more
        self._together.bytes += more
