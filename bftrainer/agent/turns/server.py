"""The agent's end of turns: a Unix socket at which the workers of its node ask for theirs and give them back.

Each worker has a connection. Its first line names its trainer and device; then it says `take`, is answered
`go`, computes, and says `give`, with the memory that it has used at most and that of its device (bytes). One
that has lost its turn gets `lost`. A connection that closes gives the turn back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bftrainer.agent.turns.table import DeviceTurns

log = logging.getLogger(__name__)

MAX_LINE = 256
"""Bytes of a worker's line, at most: names of a device, and a few numbers."""
LEAST_STEPS = 5
"""Fewer steps say nothing of how a trainer computes."""
MAX_BYTES = 10**15


@dataclass(slots=True)
class TurnTaker:
    """A worker at its turns. Times are in seconds, memory in bytes; `asked` and `began` are when it asked
    last, and got its turn; 0: it does neither now."""

    number: int
    transport: asyncio.Transport
    trainer: int = 0
    device: str = ""
    asked: float = 0.0
    began: float = 0.0
    held_s: float = 0.0
    waited_s: float = 0.0
    peak: int = 0
    memory: int = 0
    start: tuple[int, float, float, float] | None = None  # step, time, held_s, waited_s at its first report

    def usage(self, step: int, beside: int, now: float) -> dict[str, Any] | None:
        """Its use of the device since the workers there last changed, see `wire.messages.from_agent`; None if
        there are too few steps yet."""
        if self.start is None or step < self.start[0]:
            self.start = step, now, self.held_s, self.waited_s
        first, since, held_s, waited_s = self.start
        steps = step - first
        if steps < LEAST_STEPS:
            return None
        return {
            "step_s": (now - since) / steps,
            "held_s": (self.held_s - held_s) / steps,
            "waited_s": (self.waited_s - waited_s) / steps,
            "peak": self.peak,
            "memory": self.memory,
            "beside": beside,
        }


@dataclass(slots=True)
class _Device:
    turns: DeviceTurns = field(default_factory=DeviceTurns)
    timer: asyncio.TimerHandle | None = None


class TurnServer:
    """Passes turns on between the workers of this node. Listens from the first `open` on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._name = ""
        self._server: asyncio.Server | None = None
        self._takers: dict[int, TurnTaker] = {}
        self._devices: dict[str, _Device] = {}
        self._count = 0
        self._hurried: set[int] = set()  # trainers

    async def open(self) -> str:
        """The name of the socket, in the kernel's namespace without files; workers add the zero byte."""
        if self._server is None:
            self._name = f"bftrainer-turns-{secrets.token_hex(16)}"
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(lambda: _Connection(self), f"\0{self._name}")
        return self._name

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def hurry(self, trainer: int) -> None:
        """Workers of a trainer may leave, or meet others: until `calm` they wait for nobody's turn."""
        self._hurried.add(trainer)
        for taker in self._of(trainer):
            self._change(taker.device, DeviceTurns.hurry, taker.number, self._clock())

    def calm(self, trainer: int) -> None:
        """The workers of a trainer have met, and take turns again."""
        self._hurried.discard(trainer)
        for taker in self._of(trainer):
            taker.start = None
            self._change(taker.device, DeviceTurns.calm, taker.number)

    def usage(self, trainer: int, step: int) -> dict[str, Any] | None:
        """Use of a device by the trainer's worker here, or one of them; see `TurnTaker.usage`."""
        taker = next(iter(self._of(trainer)), None)
        if taker is None:
            return None
        others = {other.trainer for other in self._takers.values() if other.device == taker.device}
        return taker.usage(step, next(iter(others - {trainer, 0}), 0), self._clock())

    def _of(self, trainer: int) -> list[TurnTaker]:
        return [taker for taker in self._takers.values() if taker.trainer == trainer]

    # what connections do

    def connected(self, transport: asyncio.Transport) -> TurnTaker:
        """A worker has connected."""
        self._count += 1
        taker = self._takers[self._count] = TurnTaker(self._count, transport)
        return taker

    def said(self, taker: TurnTaker, line: bytes) -> None:
        """A worker has sent a line.

        Raises:
            ValueError: workers send no such line.
        """
        words = line.decode("ascii").split()
        now = self._clock()
        if not taker.trainer:
            trainer, taker.device = words
            taker.trainer = int(trainer)
            self._others_changed(taker.device)
            if taker.trainer in self._hurried:
                self._change(taker.device, DeviceTurns.hurry, taker.number, now)
        elif words == ["take"]:
            taker.asked = now
            self._change(taker.device, DeviceTurns.take, taker.number, now)
        elif words[:1] == ["give"] and len(words) == 3:
            peak, memory = (max(0, min(int(word), MAX_BYTES)) for word in words[1:])
            taker.peak, taker.memory = max(taker.peak, peak), memory
            if taker.began:
                taker.held_s += now - taker.began
                taker.began = 0.0
            self._change(taker.device, DeviceTurns.give, taker.number, now)
        else:
            raise ValueError(f"no word of workers: {words[:3]}")

    def gone(self, taker: TurnTaker) -> None:
        """A worker's connection is closed."""
        self._takers.pop(taker.number, None)
        if taker.device:
            self._others_changed(taker.device)
            self._change(taker.device, DeviceTurns.gone, taker.number, self._clock())

    def _others_changed(self, device: str) -> None:
        """Restart the measurement of a device's use, as others compute there."""
        for taker in self._takers.values():
            if taker.device == device:
                taker.start = None

    def _change(self, name: str, change: Callable[..., DeviceTurns], *about: float) -> None:
        """Change the turns on a device, tell workers whose turn it is now, and look again when one is up."""
        device = self._devices.setdefault(name, _Device())
        device.turns = change(device.turns, *about)
        now = self._clock()
        for number in (device.turns.holder, *device.turns.free):
            taker = self._takers.get(number or 0)
            if taker is not None and taker.asked:
                taker.waited_s += now - taker.asked
                taker.asked, taker.began = 0.0, now
                taker.transport.write(b"go\n")
        if device.timer is not None:
            device.timer.cancel()
        due = device.turns.due
        device.timer = None
        if due is not None:
            later = max(0.0, due - now)
            device.timer = asyncio.get_running_loop().call_later(later, self._overdue, name)

    def _overdue(self, name: str) -> None:
        turns = self._devices[name].turns
        late = self._takers.get(turns.holder or 0)
        now = self._clock()
        if late is not None and turns.overdue(now) is not turns:
            log.warning("trainer %d has lost its turn after %.1f s", late.trainer, now - late.began)
            late.transport.write(b"lost\n")
        self._change(name, DeviceTurns.overdue, now)


class _Connection(asyncio.Protocol):
    """Lines of one worker. Processes of other users are sent away."""

    def __init__(self, server: TurnServer) -> None:
        self._server, self._rest = server, b""
        self._taker: TurnTaker | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  of a stream
        peer = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self._transport = transport
        if struct.unpack("3i", peer)[1] != os.getuid():
            transport.abort()
            return
        self._taker = self._server.connected(transport)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            if len(self._rest) > MAX_LINE:
                raise ValueError("a line without end")
            for line in lines:
                if self._taker is not None:
                    self._server.said(self._taker, line)
        except ValueError as error:
            log.warning("a worker says what is no turn: %s", error)
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by asyncio."""
        if self._taker is not None:
            self._server.gone(self._taker)
