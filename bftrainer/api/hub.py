"""The agents' connections: implements `ports.Link`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import aiohttp
from aiohttp import web

from bftrainer.ports import Message

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0


class Hub:
    """One WebSocket per agent. `up(node, tag, inventory)` says whether the agent may stay."""

    def __init__(
        self,
        *,
        up: Callable[[str, str, list[Message]], bool],
        down: Callable[[str], None],
        said: Callable[[str, Message], None],
    ) -> None:
        self._up, self._down, self._said = up, down, said
        self._queues: dict[str, asyncio.Queue[Message]] = {}

    def connected(self, node: str) -> bool:
        return node in self._queues

    def send(self, node: str, message: Message) -> None:
        queue = self._queues.get(node)
        if queue is not None:
            queue.put_nowait(message)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """The handler of an agent's connection, for as long as it lives."""
        ws = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=16 * 1024 * 1024)
        await ws.prepare(request)
        hello = await ws.receive_json(timeout=10.0)
        node, queue = hello["node"], asyncio.Queue[Message]()
        if node in self._queues:  # a second pilot on the node, or one whose first connection hangs
            await ws.send_json({"type": "exit"})
            return ws
        self._queues[node] = queue
        if not self._up(node, hello["tag"], hello["workers"]):
            del self._queues[node]
            await ws.send_json({"type": "exit"})
            return ws
        sender = asyncio.create_task(self._send_all(ws, queue))
        try:
            async for frame in ws:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._said(node, frame.json())
        finally:
            sender.cancel()
            del self._queues[node]
            self._down(node)
        return ws

    async def _send_all(self, ws: web.WebSocketResponse, queue: asyncio.Queue[Message]) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await ws.send_json(await queue.get())
