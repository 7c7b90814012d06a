"""The agent's connection to its daemon: made, proven and sealed, and made again whenever it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

import aiohttp

from bftrainer.model.reports import Message
from bftrainer.wire import seal
from bftrainer.wire.seal import Seal

log = logging.getLogger(__name__)

RETRY_S = 0.2
HEARTBEAT_S = 10.0
CONNECT_S = 20.0


class Owner(Protocol):
    """What the connection needs of its agent."""

    def running(self) -> list[Message]:
        """The workers of this node, as a hello lists them."""
        ...

    def obey(self, order: Message) -> None:
        """Carry out an order of the daemon."""
        ...

    async def give_up(self) -> None:
        """The daemon has been gone for too long."""
        ...


class Connection:
    """Keeps one connection to the daemon, which is the path of its Unix socket, or host:port.

    What is said without a connection is dropped, since the next hello says what runs here; but the ends of
    workers are kept and sent after that.
    """

    def __init__(
        self, *, node: str, tag: str, secret: str, daemon: str, orphan_s: float, address: str = ""
    ) -> None:
        self._node, self._tag, self._secret, self._daemon = node, tag, secret, daemon
        self._orphan_s = orphan_s
        self.address = address
        """Where this node's workers listen for peers; by default where it met the daemon first."""
        self.connected = False
        """Whether messages can be sent; from the hello on, before the daemon has answered it."""
        self.heard_at = 0.0
        """When the daemon was last there, by the clock of the event loop."""
        self._outbox: asyncio.Queue[Message] = asyncio.Queue()
        self._unsent: list[Message] = []  # ends of workers without a connection

    def tell(self, message: Message) -> None:
        """Send a message; without a connection, keep it only if it is the end of a worker."""
        if self.connected:
            self._outbox.put_nowait(message)
        elif message["type"] == "exited":
            self._unsent.append(message)

    async def keep(self, owner: Owner) -> None:
        """Connect and obey, again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        self.heard_at = loop.time()
        local = "/" in self._daemon
        connector = aiohttp.UnixConnector(path=self._daemon) if local else None
        url = f"http://{'bftrainer' if local else self._daemon}/v1/agent"
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                try:
                    async with session.ws_connect(url, heartbeat=HEARTBEAT_S, max_msg_size=0) as ws:
                        if not self.address:
                            self.address = "127.0.0.1" if local else ws.get_extra_info("sockname")[0]
                        if seals := await self._introduce(ws, owner):
                            await self._converse(ws, owner, *seals)
                            self.heard_at = loop.time()
                except seal.ForgedError as error:
                    log.warning("%s; connecting again", error)
                except (aiohttp.ClientError, OSError, TimeoutError, TypeError, ValueError, KeyError):
                    pass  # no daemon at the moment, or not ours; try again below
                if loop.time() - self.heard_at > self._orphan_s:
                    log.warning("no daemon for %.0f s: giving up", self._orphan_s)
                    await owner.give_up()
                await asyncio.sleep(RETRY_S)

    async def _introduce(self, ws: aiohttp.ClientWebSocketResponse, owner: Owner) -> tuple[Seal, Seal] | None:
        """Say which node this is and what runs here; our seal and the daemon's, if it lets us in now."""
        self._outbox = asyncio.Queue()
        challenge = await ws.receive_json(timeout=CONNECT_S)
        # workers that ended without a connection are listed too: the daemon hears their ends next
        there = owner.running() + [
            running(m["trainer"], m["started"], m["run"], m["phase"]) for m in self._unsent
        ]
        self.connected = True  # what is said from now on waits in the outbox for the hello to be sent
        nonce, welcome = seal.nonce(), False
        try:
            ours, theirs = seal.seals(self._secret, str(challenge["nonce"]), nonce)
            hello = {"type": "hello", "node": self._node, "tag": self._tag, "workers": there, "nonce": nonce}
            await ws.send_str(ours.put(hello))
            answer = theirs.take(await ws.receive_str(timeout=CONNECT_S))
            welcome = answer["type"] == "welcome"
            if not welcome:  # the daemon is there, but has just been started
                self.heard_at = asyncio.get_running_loop().time()
        except seal.ForgedError:
            log.warning("the process that answers at %s does not know our secret", self._daemon)
        finally:
            if not welcome:
                self._disconnect()
        return (ours, theirs) if welcome else None

    def _disconnect(self) -> None:
        """The daemon has not listened: what waits to be sent is as if it was said without a connection."""
        self.connected = False
        while not self._outbox.empty():
            self.tell(self._outbox.get_nowait())

    async def _converse(
        self, ws: aiohttp.ClientWebSocketResponse, owner: Owner, ours: Seal, theirs: Seal
    ) -> None:
        """Send and obey until the connection is lost. Raises `ForgedError` for an order of another origin."""
        for message in self._unsent:
            self._outbox.put_nowait(message)
        self._unsent = []
        sender = asyncio.create_task(self._send_all(ws, ours))
        try:
            async for frame in ws:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    owner.obey(theirs.take(frame.data))
        finally:
            self.connected = False
            sender.cancel()

    async def _send_all(self, ws: aiohttp.ClientWebSocketResponse, ours: Seal) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await ws.send_str(ours.put(await self._outbox.get()))


def running(trainer: int, generation: int, run: int, phase: str, joined: int = 0) -> Message:
    """An entry of the workers in a hello, see `wire.messages.from_agent.Running`."""
    return {"trainer": trainer, "generation": generation, "run": run, "phase": phase, "joined": joined}
