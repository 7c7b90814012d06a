"""The agent's connection to its daemon: made, proven and sealed, and made again whenever it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Protocol

import aiohttp

from bftrainer.agent.outbox import AgentOutbox
from bftrainer.model.reports import Message
from bftrainer.wire import seal
from bftrainer.wire.headers import NONCE_HEADER, PROTOCOL, PROTOCOL_HEADER, TAG_HEADER
from bftrainer.wire.parse import parse
from bftrainer.wire.seal import Seal

log = logging.getLogger(__name__)

RETRY_S = 0.2
HEARTBEAT_S = 10.0
CONNECT_S = 20.0
MAX_SENT = 63_000
"""Bytes of a message to the daemon, at most: with its MAC it is within `HubLimits.message`."""
MAX_ORDER = 8 * 1024 * 1024
"""Bytes of a daemon's message, at most; one with the names of 100,000 members has fewer."""


class Owner(Protocol):
    """The part of the agent that the connection uses."""

    def running(self) -> list[Message]:
        """The workers of this node, as a hello lists them."""
        ...

    def devices(self) -> Message:
        """The devices of this pilot, as a hello lists them."""
        ...

    def obey(self, order: Message) -> None:
        """Carry out an order of the daemon."""
        ...

    async def give_up(self) -> None:
        """The daemon has been gone for too long."""
        ...


class DaemonConnection:
    """Keeps one connection to the daemon, which is the path of its Unix socket, or host:port.

    Messages without a connection are dropped, since the next hello says what runs here; but the ends of
    workers are kept until the daemon has heard them.
    """

    def __init__(
        self, *, node: str, tag: str, secret: str, daemon: str, orphan_s: float, address: str = ""
    ) -> None:
        self._node, self._tag, self._secret, self._daemon = node, tag, secret, daemon
        self._orphan_s = orphan_s
        self.address = address
        """Address of this node's workers for peers; by default the one that met the daemon first."""
        self.heard_at = 0.0
        """Time of the daemon's last message, by the clock of the event loop."""
        self._outbox = AgentOutbox()
        self._refused = ""  # what the daemon last said instead of letting us connect

    @property
    def connected(self) -> bool:
        """True if messages can be sent: from the hello on, before the daemon has answered it."""
        return self._outbox.connected

    def tell(self, message: Message) -> None:
        """Send a message; without a connection, keep it only if it is the end of a worker."""
        self._outbox.tell(message)

    async def keep(self, owner: Owner) -> None:
        """Connect and obey, again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        self.heard_at = loop.time()
        local = "/" in self._daemon
        connector = aiohttp.UnixConnector(path=self._daemon) if local else None
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                try:
                    await self._connect(session, owner, local=local)
                except seal.ForgedError as error:
                    log.warning("%s; connecting again", error)
                except aiohttp.WSServerHandshakeError as error:
                    self._note_refusal(f"{error.status} {error.message}")
                except (aiohttp.ClientError, OSError, TimeoutError, TypeError, ValueError, KeyError):
                    pass  # no daemon at the moment, or another one; try again below
                if loop.time() - self.heard_at > self._orphan_s:
                    log.warning("no daemon for %.0f s: giving up", self._orphan_s)
                    await owner.give_up()
                await asyncio.sleep(RETRY_S)

    async def _connect(self, session: aiohttp.ClientSession, owner: Owner, *, local: bool) -> None:
        """Connect once, and obey until that connection is lost."""
        nonce = seal.nonce()
        headers = {PROTOCOL_HEADER: PROTOCOL, TAG_HEADER: self._tag, NONCE_HEADER: nonce}
        url = f"http://{'bftrainer' if local else self._daemon}/v1/agent"
        async with session.ws_connect(
            url, headers=headers, heartbeat=HEARTBEAT_S, max_msg_size=MAX_ORDER, decode_text=False
        ) as ws:
            if not self.address:
                self.address = "127.0.0.1" if local else ws.get_extra_info("sockname")[0]
            if seals := await self._introduce(ws, owner, nonce):
                await self._converse(ws, owner, *seals)
                self.heard_at = asyncio.get_running_loop().time()

    def _note_refusal(self, said: str) -> None:
        """Tell once why the daemon does not let us connect."""
        if said != self._refused:
            log.warning("the daemon at %s refuses us: %.300s", self._daemon, said)
        self._refused = said

    async def _introduce(
        self, ws: aiohttp.ClientWebSocketResponse[bool], owner: Owner, nonce: str
    ) -> tuple[Seal, Seal] | None:
        """Say this node and what runs here; returns the agent's seal and the daemon's, if admitted."""
        challenge = parse(await _receive(ws))
        # workers whose ends the daemon has not heard are listed too: it hears them next
        there = owner.running() + [
            running(m["trainer"], m["started"], m["run"], m["phase"]) for m in self._outbox.ends()
        ]
        self._outbox.connect()  # what is said from now on waits for the hello to be sent
        welcome = False
        try:
            ours, theirs = seal.seals(self._secret, str(challenge["nonce"]), nonce)
            hello = {"type": "hello", "node": self._node, "workers": there, "devices": owner.devices()}
            await ws.send_str(ours.put(hello))
            answer = theirs.take(await _receive(ws))
            welcome = answer["type"] == "welcome"
            if not welcome:  # the daemon is there, but has just been started
                self.heard_at = asyncio.get_running_loop().time()
        except seal.ForgedError:
            log.warning("the process that answers at %s does not know our secret", self._daemon)
        finally:
            if not welcome:
                self._outbox.disconnect()
        return (ours, theirs) if welcome else None

    async def _converse(
        self, ws: aiohttp.ClientWebSocketResponse[bool], owner: Owner, ours: Seal, theirs: Seal
    ) -> None:
        """Send and obey until the connection is lost. Raises `ForgedError` for an order of another origin."""
        sender = asyncio.create_task(self._send_all(ws, ours))
        try:
            async for frame in ws:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    order = theirs.take(frame.data)
                    if order.get("type") == "heard":
                        self._outbox.heard(order)
                    else:
                        owner.obey(order)
        finally:
            self._outbox.disconnect()
            sender.cancel()

    async def _send_all(self, ws: aiohttp.ClientWebSocketResponse[bool], ours: Seal) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                text = written(await self._outbox.get())
                if text is not None:
                    await ws.send_str(ours.put_text(text))


async def _receive(ws: aiohttp.ClientWebSocketResponse[bool]) -> bytes:
    """The next message. Raises `ConnectionError` if there is none."""
    frame = await ws.receive(timeout=CONNECT_S)
    if frame.type is not aiohttp.WSMsgType.TEXT:
        raise ConnectionResetError("the connection ended before it began")
    data: bytes = frame.data
    return data


def written(message: Message) -> str | None:
    """A message as JSON. One that is larger than the daemon takes goes without its figures; None: it would be
    too large even so."""
    text = json.dumps(message)
    if len(text) <= MAX_SENT:
        return text
    log.warning("a message of %d bytes is sent without figures", len(text))
    bare = {**message, "last": {}} if message["type"] == "exited" else message
    if "said" in bare:
        bare = {**bare, "said": {**bare["said"], "metrics": {}}}
    text = json.dumps(bare)
    return text if len(text) <= MAX_SENT else None


def running(
    trainer: int, generation: int, run: int, phase: str, joined: int = 0, workers: int = 1
) -> Message:
    """An entry of the workers in a hello, see `wire.messages.from_agent.Running`."""
    return {
        "trainer": trainer,
        "generation": generation,
        "run": run,
        "phase": phase,
        "joined": joined,
        "workers": workers,
    }
