"""The agents' connections to the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import aiohttp
from aiohttp import web

from bftrainer.model.reports import Message
from bftrainer.wire import seal
from bftrainer.wire.messages.from_agent import Hello

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
"""How often each connection is probed; one that does not answer within half of that counts as lost."""


@dataclass(slots=True, eq=False)
class _Agent:
    tag: str
    queue: asyncio.Queue[Message]


class AgentEvents(Protocol):
    """What the hub's owner does when agents connect, speak and leave."""

    def is_open(self) -> bool:
        """Whether agents may come in. If not, they are asked to come again later: the daemon does not know
        yet which pilots there are."""
        ...

    def up(self, node: str, tag: str, inventory: list[Message]) -> bool:
        """An agent in the pilot `tag` has connected and lists its workers, not validated yet; whether it may
        stay."""
        ...

    def down(self, node: str) -> None:
        """A node's agent has lost its connection."""
        ...

    def said(self, node: str, message: Message) -> None:
        """A node's agent has sent a message, not validated yet: see `messages.from_agent.read`."""
        ...


class Hub:
    """One WebSocket per agent. `listen` says where to report what agents do; until then none is let in.

    Every message but the daemon's challenge is sealed with the secret of the agent's pilot, `secret_of(tag)`.
    So a process that finds the port, or sits between the two, can neither pose as a node nor give orders to
    one.
    """

    def __init__(self, secret_of: Callable[[str], str]) -> None:
        self._secret_of = secret_of
        self._events: AgentEvents | None = None
        self._agents: dict[str, _Agent] = {}

    def listen(self, events: AgentEvents) -> None:
        """Report to `events` what agents do from now on."""
        self._events = events

    def connected(self, node: str) -> bool:
        """Whether a node's agent is connected."""
        return node in self._agents

    def send(self, node: str, message: Message) -> None:
        """Send without waiting; nothing happens if the node has no agent."""
        agent = self._agents.get(node)
        if agent is not None:
            agent.queue.put_nowait(message)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Handle an agent's connection, for as long as it lives."""
        ws = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=16 * 1024 * 1024)
        with contextlib.suppress(ConnectionError):  # the agent was killed while it connected
            await ws.prepare(request)
        if not ws.prepared:
            return web.Response()
        events, introduction = self._events, await self._introduction(ws)
        if events is None or introduction is None:
            return ws
        hello, theirs, ours = introduction
        node, tag = hello.node, hello.tag
        before = self._agents.get(node)
        if before is not None and before.tag != tag:  # a second pilot on the node
            await ws.send_str(ours.put({"type": "exit"}))
            return ws
        # the same agent again: its first connection is dead, though we have not noticed yet
        agent = self._agents[node] = _Agent(tag, asyncio.Queue())
        if not events.up(node, tag, hello.workers):
            self._forget(node, agent)
            await ws.send_str(ours.put({"type": "exit"}))
            return ws
        sender = asyncio.create_task(self._send_all(ws, ours, agent.queue))
        try:
            async for frame in ws:
                if self._agents.get(node) is not agent:
                    break
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._take(events, node, theirs, frame.data)
        except seal.ForgedError as error:
            log.warning("%s: %s; the agent is to connect again", node, error)
        finally:
            sender.cancel()
            if self._forget(node, agent):
                events.down(node)
        return ws

    def _take(self, events: AgentEvents, node: str, theirs: seal.Seal, sealed: str) -> None:
        """Report one message. Raises `ForgedError` if the agent has not sent it."""
        try:
            message = theirs.take(sealed)
        except seal.ForgedError:
            raise
        except ValueError as error:
            log.warning("from %s comes what is no message: %s", node, error)
        else:
            events.said(node, message)

    async def _introduction(self, ws: web.WebSocketResponse) -> tuple[Hello, seal.Seal, seal.Seal] | None:
        """The hello and both seals of an agent that has proven to be one and may come in now."""
        challenge = seal.nonce()
        try:
            await ws.send_json({"type": "challenge", "nonce": challenge})
            said = await ws.receive_str(timeout=10.0)
            hello = Hello.model_validate(seal.unchecked(said))  # it says which secret is to check it
            theirs, ours = seal.seals(self._secret_of(hello.tag), challenge, hello.nonce)
            theirs.take(said)
            is_open = self._events is not None and self._events.is_open()
            await ws.send_str(ours.put({"type": "welcome" if is_open else "later"}))
        except seal.ForgedError:
            log.warning(
                "a process that poses as the agent on %.100r does not know its pilot's secret", hello.node
            )
            return None
        except (TypeError, ValueError, TimeoutError, ConnectionError) as error:
            log.warning("a connection that does not begin like an agent's: %r", error)
            return None
        return (hello, theirs, ours) if is_open else None

    def _forget(self, node: str, agent: _Agent) -> bool:
        """Drop a node's connection; whether it was the present one."""
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
