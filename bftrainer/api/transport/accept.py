"""Accepts the connections of one listening socket: each is counted to its owner before a byte is read.

asyncio's own loop would take every connection, and log a traceback for each that it cannot take.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket as socket_
import struct
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from bftrainer.api.transport.admission import Admission, BusyError, ConnectionPlace, Owner
from bftrainer.api.transport.connection import Connection, answer_without_request, one_request
from bftrainer.api.transport.local_users import address_of, local_uid
from bftrainer.api.transport.sockets import PORTION, ClientSocket, briefly, client_of

TURN_S = 0.003
"""Seconds for which connections are accepted in one turn of the event loop."""
AT_ONCE = 16
"""Connections admitted in a turn: those that make room for them are open until its end."""
BACKLOG = 1024
"""Connections that wait in the kernel, at most."""
PAUSE_S = 0.1
"""Seconds without accepting after the system had no descriptor or memory for a connection."""
LINGER_S = 0.5
"""Seconds that a refused connection stays open: a client that writes first has time to read why."""
LINGERING = 32
"""Refused connections that are open at once, at most."""
IPV6_SITE = 64
"""Bits: an IPv6 client has a whole network of addresses, whose prefix counts as one address."""
LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
"""The same for a client on this machine whose user is not known."""
SUBORDINATE = 1 << 16
"""Subordinate numbers of a user (/etc/subuid), as each of which it can connect: blocks of this size without
names count as one user. Lower numbers are people's and services'."""


class Listener:
    """Serves an application on a bound socket, until `cleanup`; reads portions of `portion` bytes. `named`
    has the user numbers that are known to have a name."""

    def __init__(
        self,
        app: web.Application,
        bound: socket_.socket,
        admission: Admission,
        portion: int = PORTION,
        named: Callable[[int], bool] = lambda uid: True,
    ) -> None:
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        self._bound, self._admission, self._portion, self._named = bound, admission, portion, named
        self._server: web.Server | None = None
        self._arriving: set[asyncio.Task[None]] = set()
        self._refused = 0  # connections that were, and are open yet
        self._resume: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Begin to listen."""
        await self._runner.setup()
        self._server = self._runner.server
        assert self._server is not None  # noqa: S101  setup has made it
        self._server.request_handler = one_request(self._server.request_handler)
        self._bound.setblocking(False)
        self._bound.listen(BACKLOG)
        self._listen()

    async def cleanup(self) -> None:
        """Accept nothing any more, and end what is open."""
        if self._resume is not None:
            self._resume.cancel()
        if self._server is not None:
            asyncio.get_running_loop().remove_reader(self._bound)
        with briefly():
            self._bound.close()
        for task in tuple(self._arriving):
            task.cancel()
        await self._runner.cleanup()

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        until, accepted, admitted = time.monotonic() + TURN_S, 0, 0
        while time.monotonic() < until and admitted < AT_ONCE:
            try:
                connection, address = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor, no memory: the connection waits in the kernel
                self._pause(error, make_room=not accepted)  # else perhaps none waits any more
                return
            accepted += 1
            admitted += self._admit(client_of(connection, self._portion), address)

    def _admit(self, client: ClientSocket, address: Any) -> bool:
        """Serve a connection, or close it; whether it is served."""
        client.setblocking(False)
        try:
            place = self._admission.enter(owner_of(client, address, self._named))
        except BusyError as error:
            self._refuse(client, error)
            return False
        except OSError:  # it is gone already
            client.close()
            return False
        task = asyncio.get_running_loop().create_task(self._connect(client, place))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)
        return True

    def _refuse(self, client: socket_.socket, why: BusyError) -> None:
        with contextlib.suppress(OSError):
            client.send(answer_without_request(why.status, str(why)))
        if self._refused >= LINGERING:
            client.close()
            return
        with contextlib.suppress(OSError):
            client.shutdown(socket_.SHUT_WR)
        self._refused += 1
        asyncio.get_running_loop().call_later(LINGER_S, self._forget, client)

    def _forget(self, client: socket_.socket) -> None:
        client.close()
        self._refused -= 1

    async def _connect(self, client: ClientSocket, place: ConnectionPlace) -> None:
        server = self._server
        assert server is not None  # noqa: S101
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(server, place, client), client
            )
        except (OSError, asyncio.CancelledError):
            client.close()
            place.lost()

    def _pause(self, error: OSError, *, make_room: bool) -> None:
        """Wait a moment; with `make_room`, have an idle connection end meanwhile."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._bound)
        self._resume = loop.call_later(PAUSE_S, self._listen)
        if make_room:
            self._admission.evict_idle(f"the daemon can open no more connections ({error.strerror})")
        self._admission.failed(f"cannot accept connections: {error.strerror}")


def owner_of(client: socket_.socket, address: Any, named: Callable[[int], bool]) -> Owner:
    """To whom a connection is counted: to the user at the other end of a Unix socket, or of a connection on
    this machine, as the kernel says, if that is no subordinate number of another; else to the address.

    Raises:
        OSError: the client is gone.
    """
    unix = client.family == socket_.AF_UNIX
    uid = peer_uid(client) if unix else local_uid(client, address[:2])
    if uid is not None:
        if uid < SUBORDINATE or named(uid):
            return "user", uid
        first = uid - uid % SUBORDINATE
        return "unnamed", f"uids {first} to {first + SUBORDINATE - 1}"
    host = address_of(address[0])  # (host, port, ...)
    if isinstance(host, ipaddress.IPv6Address):
        return "address", str(ipaddress.ip_network((host, IPV6_SITE), strict=False))
    return "address", str(LOOPBACK if host in LOOPBACK else host)


def peer_uid(client: socket_.socket) -> int:
    """The number of the user at the other end of a Unix socket."""
    credentials = client.getsockopt(socket_.SOL_SOCKET, socket_.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid
