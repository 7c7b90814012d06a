"""Where the HTTP server listens: a Unix socket, a TCP port, and a loopback port for metrics."""

from __future__ import annotations

import contextlib
import os
import socket as socket_
import stat
from pathlib import Path

from aiohttp import web

from bftrainer.api.callers import Caller
from bftrainer.api.probes import probes
from bftrainer.api.routes import metrics_response
from bftrainer.api.service import Service
from bftrainer.errors import BftrainerError

LOOPBACK = "127.0.0.1"


async def export(service: Service, port: int, caller: Caller) -> web.AppRunner:
    """Serve /metrics, as far as `caller` may read them, and the probes on a port of the loopback address.

    Raises:
        BftrainerError: The port is taken.
    """

    async def metrics(request: web.Request) -> web.Response:
        """Return the metrics."""
        return metrics_response(service, caller)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), *probes(service)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, port).start()
    except OSError as error:
        await runner.cleanup()
        raise BftrainerError(f"metrics_port {port}: {error.strerror}; take another") from error
    return runner


async def listen_tcp(app: web.Application, bound: socket_.socket) -> web.AppRunner:
    """Serve `app` on a bound socket: to users, and to agents, which prove that they know a secret."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    return runner


def bind(address: str) -> socket_.socket:
    """Return a listening socket at host:port; port 0 takes any that is free.

    Raises:
        BftrainerError: The address is not this machine's, or the port is taken.
    """
    host, _, port = address.rpartition(":")
    try:
        found = socket_.getaddrinfo(host.strip("[]"), int(port), type=socket_.SOCK_STREAM)
        return socket_.create_server(found[0][4][:2], family=found[0][0])
    except (OSError, ValueError, OverflowError) as error:
        raise BftrainerError(f"listen {address}: {error}; give host:port of this machine") from error


async def listen(app: web.Application, socket: Path, *, for_all: bool) -> web.AppRunner:
    """Serve `app` on a Unix socket, for its owner only or for all users; replace a stale socket file.

    Raises:
        BftrainerError: The path allows no socket, or not all users can reach it although `for_all`.
    """
    if len(str(socket).encode()) > 100:
        raise BftrainerError(f"{socket}: a socket's path has at most 100 bytes; take a shorter one")
    if for_all:
        _require_way_to(socket.parent)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    listener = socket_.socket(socket_.AF_UNIX, socket_.SOCK_STREAM)
    before = os.umask(0o111 if for_all else 0o177)  # no moment without the right permissions
    try:
        with contextlib.suppress(FileNotFoundError):
            socket.unlink()
        listener.bind(str(socket))
    except OSError as error:
        listener.close()
        await runner.cleanup()
        raise BftrainerError(f"socket {socket}: {error.strerror}; take another path") from error
    finally:
        os.umask(before)
    await web.SockSite(runner, listener).start()
    return runner


def _require_way_to(folder: Path) -> None:
    """Raise a `BftrainerError` if not every user may enter a folder and those above it."""
    for place in (folder, *folder.parents):
        try:
            open_to_all = place.stat().st_mode & stat.S_IXOTH
        except OSError as error:
            raise BftrainerError(f"socket: {place}: {error.strerror}; make the folder first") from error
        if not open_to_all:
            raise BftrainerError(
                f"socket: users cannot reach it through {place}; allow it with chmod o+x {place}, or take "
                "another path"
            )
