"""The agents' connections: implements `ports.Link`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from bftrainer.model.reports import Message
from bftrainer.wire import seal

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0


@dataclass(slots=True, eq=False)
class _Agent:
    tag: str
    queue: asyncio.Queue[Message]


class Hub:
    """One WebSocket per agent. `up(node, tag, inventory)` says whether the agent may stay. While `is_open`
    says no, agents are asked to come again: nobody knows yet which of them there should be.

    Every message but the daemon's challenge is sealed with the secret of the agent's pilot, `secret_of(tag)`:
    who found the port, or sits between the two, can neither play a node nor give orders to one.
    """

    def __init__(
        self,
        *,
        secret_of: Callable[[str], str],
        is_open: Callable[[], bool],
        up: Callable[[str, str, list[Message]], bool],
        down: Callable[[str], None],
        said: Callable[[str, Message], None],
    ) -> None:
        self._secret_of, self._is_open = secret_of, is_open
        self._up, self._down, self._said = up, down, said
        self._agents: dict[str, _Agent] = {}

    def connected(self, node: str) -> bool:
        return node in self._agents

    def send(self, node: str, message: Message) -> None:
        agent = self._agents.get(node)
        if agent is not None:
            agent.queue.put_nowait(message)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The handler of an agent's connection, for as long as it lives."""
        ws = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=16 * 1024 * 1024)
        with contextlib.suppress(ConnectionError):  # killed while it connected: nobody is there to answer
            await ws.prepare(request)
        if not ws.prepared:
            return web.Response()
        hello = await self._introduction(ws)
        if hello is None:
            return ws
        node, tag, inventory, theirs, ours = hello
        before = self._agents.get(node)
        if before is not None and before.tag != tag:  # a second pilot on the node
            await ws.send_str(ours.put({"type": "exit"}))
            return ws
        # the same agent again: its first connection is dead, though we have not noticed yet
        agent = self._agents[node] = _Agent(tag, asyncio.Queue())
        if not self._up(node, tag, inventory):
            self._forget(node, agent)
            await ws.send_str(ours.put({"type": "exit"}))
            return ws
        sender = asyncio.create_task(self._send_all(ws, ours, agent.queue))
        try:
            async for frame in ws:
                if self._agents.get(node) is not agent:
                    break
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._said(node, theirs.take(frame.data))
        except seal.ForgedError as error:
            log.warning("%s: %s; the agent is to connect again", node, error)
        finally:
            sender.cancel()
            if self._forget(node, agent):
                self._down(node)
        return ws

    async def _introduction(
        self, ws: web.WebSocketResponse
    ) -> tuple[str, str, list[Message], seal.Seal, seal.Seal] | None:
        """Node, tag, inventory and both seals of an agent that has proven to be one and may come in now."""
        challenge = seal.nonce()
        try:
            await ws.send_json({"type": "challenge", "nonce": challenge})
            said = await ws.receive_str(timeout=10.0)
            hello = seal.unchecked(said)  # whose secret is to check it stands in it
            node, tag, inventory = str(hello["node"]), str(hello["tag"]), list(hello["workers"])
            theirs, ours = seal.seals(self._secret_of(tag), challenge, str(hello["nonce"]))
            theirs.take(said)
            is_open = self._is_open()
            await ws.send_str(ours.put({"type": "welcome" if is_open else "later"}))
        except seal.ForgedError:
            log.warning("who says to be the agent on %.100r does not know its pilot's secret", node)
            return None
        except (TypeError, ValueError, KeyError, TimeoutError, ConnectionError) as error:
            log.warning("a connection that does not begin like an agent's: %r", error)
            return None
        return (node, tag, inventory, theirs, ours) if is_open else None

    def _forget(self, node: str, agent: _Agent) -> bool:
        """Whether this was the node's present connection."""
        if self._agents.get(node) is not agent:
            return False
        del self._agents[node]
        return True

    async def _send_all(
        self, ws: web.WebSocketResponse, ours: seal.Seal, queue: asyncio.Queue[Message]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await ws.send_str(ours.put(await queue.get()))
