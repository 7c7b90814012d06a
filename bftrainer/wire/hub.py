"""The agents' connections to the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from aiohttp import web

from bftrainer.model.reports import Message
from bftrainer.wire import seal
from bftrainer.wire.introduction import Introduced, Newcomers, introduce, refusal
from bftrainer.wire.messages.from_agent import Devices
from bftrainer.wire.outbox import Outbox, Size
from bftrainer.wire.rates import PART, Bucket, Turns

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
"""Seconds between probes of a connection; one that does not answer within half of that is lost."""
BURST_S = 20.0
"""Seconds' worth of messages that an agent may send at once after a quiet time."""
END_S = 1.0
"""Seconds for the other side to read the last word."""
FLOOD_S = 30.0
"""Seconds after which an agent that sends more than it may is cut off."""
CONNECTS_PER_S = 0.5
"""An agent's connections per second, at most; at first `BURST_S` times as many."""
MAX_KNOWN = 10_000
"""Pilots' rates to keep before those of quiet ones are forgotten."""
TOGETHER = 16
"""Bound of all agents' outboxes together, in multiples of one agent's."""
SENT_AT_ONCE = 20
"""Messages to send to one agent in one turn of the event loop: thousands of short ones may wait for one that
has not read for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubLimits:
    """Bounds of agents' use; an agent runs as its user, who may put anything in its place."""

    message: int = 64_000  # bytes of one message
    per_second: float = 20.0  # messages; one counts once more for each 4 kB. Agents merge their reports
    queue: int = 4_000_000  # bytes that wait for one agent; `TOGETHER` times as many for all
    newcomers: int = 512  # connections that have proven nothing yet


@dataclass(slots=True, eq=False)
class _Agent:
    tag: str
    ours: seal.Seal
    outbox: Outbox
    cut: Callable[[], None]
    """Ends the connection at once."""
    is_cut: bool = False
    devices: Devices | None = None


@dataclass(slots=True)
class _Rates:
    messages: Bucket
    connects: Bucket


class AgentEvents(Protocol):
    """Callbacks of the hub's owner when agents connect, speak and leave."""

    def is_open(self) -> bool:
        """True if agents may come in. If not, they are asked to come again later: the daemon does not know
        yet which pilots there are."""
        ...

    def up(self, node: str, tag: str, inventory: list[Message]) -> bool | None:
        """An agent in the pilot `tag` has connected and lists its workers, not validated yet; whether it may
        stay. None: that is unknown yet, and it must connect again."""
        ...

    def down(self, node: str) -> None:
        """A node's agent has lost its connection."""
        ...

    def said(self, node: str, message: Message) -> None:
        """A node's agent has sent a message, not validated yet: see `messages.from_agent.read`."""
        ...

    def at_bound(self, bound: str, node: str, at: float) -> None:
        """A node's agent (empty: a connection that is no agent's yet) has hit this bound, whose value is
        `at`."""
        ...

    def flooded(self, node: str, reason: str) -> None:
        """A node's agent has sent more than it may for `FLOOD_S`: it is not trusted any more."""
        ...


class Hub:
    """One WebSocket per agent. `listen` says where to report what agents do; until then none is let in.

    Every message but the daemon's challenge is sealed with the secret of the agent's pilot, `secret_of(tag)`.
    So a process that finds the port, or sits between the two, can neither pose as a node nor give orders to
    one. An agent runs as its user, so `limits` bound what it may use.
    """

    def __init__(self, secret_of: Callable[[str], str], limits: HubLimits = HubLimits()) -> None:
        self._secret_of, self._limits = secret_of, limits
        self._events: AgentEvents | None = None
        self._agents: dict[str, _Agent] = {}
        self._rates: dict[str, _Rates] = {}  # by tag
        self._written: tuple[Message, str] = ({}, "{}")
        self._newcomers, self._turns, self._waiting = Newcomers(), Turns(), Size()

    def listen(self, events: AgentEvents) -> None:
        """Report to `events` what agents do from now on."""
        self._events = events

    def connected(self, node: str) -> bool:
        """True if a node's agent is connected."""
        return node in self._agents

    def devices(self, node: str) -> Devices | None:
        """Devices of a connected agent's pilot, as far as it has reported them."""
        agent = self._agents.get(node)
        return agent.devices if agent is not None else None

    def has_devices(self, node: str, devices: Devices) -> None:
        """Note what devices the pilot of a connected agent has from now on."""
        if node in self._agents:
            self._agents[node].devices = devices

    def send(self, node: str, message: Message) -> None:
        """Send without waiting; nothing happens if the node has no agent. The message is not to change any
        more. An agent that does not read is cut off: it must connect again."""
        agent = self._agents.get(node)
        if agent is None or agent.is_cut:
            return
        if message is not self._written[0]:  # the same one often goes to many agents in a row
            self._written = (message, json.dumps(message))
        if not agent.outbox.put(agent.ours.put_text(self._written[1])):
            self._too_slow(node, agent)
        elif self._waiting.bytes > TOGETHER * self._limits.queue:
            fullest = max(self._agents, key=lambda n: self._agents[n].outbox.bytes)
            self._too_slow(fullest, self._agents[fullest])

    async def serve(
        self, request: web.Request, proven: Callable[[], None] = lambda: None
    ) -> web.StreamResponse:
        """Handle an agent's connection, for as long as it lives; `proven` is called when it has proven to be
        one."""
        events, limits, cut = self._events, self._limits, _cut(request)
        answer = refusal(request)
        if answer is not None or events is None:
            said = answer.text if answer is not None else "the daemon has just begun"
            log.warning("no agent's request from %s: %s", request.remote, said)
            return answer or web.Response(status=503)
        ws = web.WebSocketResponse(
            heartbeat=HEARTBEAT_S,
            max_msg_size=limits.message,
            compress=False,
            decode_text=False,
            autoping=False,  # aiohttp would answer a flood of pings in one turn of the loop
        )
        with self._newcomers.one(cut, limits.newcomers) as has_room:
            if not has_room:
                events.at_bound("max_newcomers", "", limits.newcomers)
                return web.Response(status=503, headers={"Retry-After": "1"})
            with contextlib.suppress(ConnectionError):  # the agent was killed while it connected
                await ws.prepare(request)
            if not ws.prepared:
                return web.Response()
            introduced = await self._introduction(ws, request, events)
        try:
            if introduced is not None:
                proven()
                await self._converse(ws, introduced, cut, events, limits)
        finally:
            _end(request, cut)
        return ws

    async def _introduction(
        self, ws: web.WebSocketResponse, request: web.Request, events: AgentEvents
    ) -> Introduced | None:
        """An agent that has proven to be one and may come in now."""
        try:
            found = await introduce(ws, request, self._secret_of)
            is_open = events.is_open() and not self._rates_of(found.tag).connects.is_short
            await ws.send_str(found.ours.put({"type": "welcome" if is_open else "later"}))
        except seal.ForgedError:
            log.warning("a process at %s does not know its pilot's secret", request.remote)
            return None
        except (TypeError, ValueError, TimeoutError, ConnectionError) as error:
            log.warning("a connection that does not begin like an agent's: %.200r", error)
            return None
        if is_open:
            self._rates_of(found.tag).connects.take()
        return found if is_open else None

    async def _converse(
        self,
        ws: web.WebSocketResponse,
        introduced: Introduced,
        cut: Callable[[], None],
        events: AgentEvents,
        limits: HubLimits,
    ) -> None:
        """Let an agent in, and hear it until its connection ends."""
        node, tag = introduced.hello.node, introduced.tag
        agent = _Agent(tag, introduced.ours, Outbox(limits.queue, self._waiting), cut)
        agent.devices = introduced.hello.devices
        sender = asyncio.create_task(_send_all(ws, agent.outbox))
        known: bool | None = False
        try:
            async with self._turns.turn():
                before = self._agents.get(node)
                if before is None or before.tag == tag:  # else a second pilot on the node
                    if before is not None:  # the same agent again: its first connection is dead, unnoticed
                        before.cut()
                    self._agents[node], known = agent, True
                    known = events.up(node, tag, introduced.hello.workers)
            if known:
                await self._hear(ws, node, agent, introduced.theirs, events)
            else:
                self._forget(node, agent)
                if known is False:
                    await ws.send_str(introduced.ours.put({"type": "exit"}))
        except seal.ForgedError as error:
            log.warning("%s: %s; the agent is to connect again", node, error)
        except ConnectionError as error:
            log.debug("%s: %s", node, error)
        except Exception:  # a bug, met by what one agent does: others are not to feel it
            log.exception("%s: its agent's connection failed, and the agent is to connect again", node)
        finally:
            sender.cancel()
            agent.outbox.close()
            if self._forget(node, agent) and known:
                events.down(node)

    async def _hear(
        self,
        ws: web.WebSocketResponse,
        node: str,
        agent: _Agent,
        theirs: seal.Seal,
        events: AgentEvents,
    ) -> None:
        """Report an agent's messages, no faster than it may send them. Raises `ForgedError` if one of them
        is not its own."""
        was_short = False
        async for frame in ws:
            if self._agents.get(node) is not agent:
                return
            cost = 1
            if frame.type is aiohttp.WSMsgType.TEXT:
                async with self._turns.turn():
                    _take(events, node, theirs, frame.data)
                cost += len(frame.data) // PART
            elif frame.type is aiohttp.WSMsgType.PING:
                await ws.pong(frame.data)
            elif getattr(frame.data, "code", None) == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
                events.at_bound("max_message_kb", node, self._limits.message / 1000)
            rate, per_second = self._rates_of(agent.tag).messages, self._limits.per_second
            wait_s = rate.take(cost)
            if rate.short_s() > FLOOD_S:
                events.flooded(
                    node, f"its agent sent over {per_second:g} messages a second for {FLOOD_S:g} s"
                )
                agent.cut()
                return
            if wait_s and not was_short:
                events.at_bound("max_messages_per_second", node, per_second)
            was_short = rate.is_short
            await asyncio.sleep(wait_s)  # what it sends meanwhile waits on its side

    def _rates_of(self, tag: str) -> _Rates:
        """Use by a pilot's agent, over all its connections."""
        if tag not in self._rates:
            if len(self._rates) >= MAX_KNOWN:
                self._rates = {t: r for t, r in self._rates.items() if not r.connects.full}
            per_second = self._limits.per_second
            self._rates[tag] = _Rates(Bucket(per_second, per_second * BURST_S), _connects())
        return self._rates[tag]

    def _too_slow(self, node: str, agent: _Agent) -> None:
        agent.is_cut = True
        agent.cut()
        if self._events is not None:
            self._events.at_bound("max_unsent_kb", node, self._limits.queue / 1000)

    def _forget(self, node: str, agent: _Agent) -> bool:
        """Drop a node's connection; whether it was the present one."""
        if self._agents.get(node) is not agent:
            return False
        del self._agents[node]
        return True


def _take(events: AgentEvents, node: str, theirs: seal.Seal, sealed: bytes) -> None:
    """Report one message. Raises `ForgedError` if the agent has not sent it."""
    try:
        events.said(node, theirs.take(sealed))
    except seal.ForgedError:
        raise
    except ValueError as error:
        log.warning("from %s comes what is no message: %.200s", node, error)
    except Exception:  # a bug, met by what one message says: the next may be heard
        log.exception("a message from %s is dropped", node)


async def _send_all(ws: web.WebSocketResponse, outbox: Outbox) -> None:
    with contextlib.suppress(ConnectionError):
        for sent in itertools.count(1):
            text = await outbox.get()
            await ws.send_str(text)
            outbox.sent(text)
            if sent % SENT_AT_ONCE == 0:  # neither of the two waits while the agent takes what it is sent
                await asyncio.sleep(0)


def _connects() -> Bucket:
    return Bucket(CONNECTS_PER_S, CONNECTS_PER_S * BURST_S)


def _end(request: web.Request, cut: Callable[[], None]) -> None:
    """End a connection once what was said is sent, and read nothing more: aiohttp alone would wait for the
    other side to agree, and read all that it sends meanwhile, without a pause."""
    pipe = request.transport
    if pipe is not None:
        pipe.close()
        if pipe.get_write_buffer_size():
            asyncio.get_running_loop().call_later(END_S, cut)


def _cut(request: web.Request) -> Callable[[], None]:
    """Returns a function that ends a connection without waiting for the other side."""

    def cut() -> None:
        transport: Any = request.transport
        if transport is not None:
            transport.abort()

    return cut
