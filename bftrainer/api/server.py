"""The HTTP server: JSON in and out, every answer from one call of the service."""

from __future__ import annotations

import contextlib
import json
import pwd
import socket as socket_
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from bftrainer.api.hub import Hub
from bftrainer.errors import BftrainerError

MAX_BODY = 1024 * 1024
MAX_ROWS = 10_000
LOOPBACK = "127.0.0.1"


class Service(Protocol):
    """What the daemon answers. Errors that a client can mend are `BftrainerError`s."""

    async def submit(self, text: str, name: str, base: str, user: str) -> dict[str, Any]: ...
    def trainers(self) -> list[dict[str, Any]]: ...
    def show(self, trainer: str) -> dict[str, Any]: ...
    async def cancel(self, trainer: str) -> dict[str, Any]: ...
    def pool(self) -> dict[str, Any]: ...
    def rows(self, what: str, limit: int, trainer: str | None) -> list[dict[str, Any]]: ...
    def logs(self, trainer: str, node: str | None, lines: int, after: dict[str, int]) -> dict[str, Any]: ...
    def status(self) -> dict[str, Any]: ...


class UnknownTrainerError(BftrainerError, LookupError):
    """No trainer has this name or number."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(service: Service, hub: Hub) -> web.Application:
    """All routes, under /v1; what Prometheus reads under /metrics."""
    app = web.Application(middlewares=[_errors], client_max_size=MAX_BODY)

    async def submit(request: web.Request) -> web.Response:
        body = await _body(request)
        text, name, base = (_text(body, key) for key in ("spec", "name", "base"))
        return web.json_response(await service.submit(text, name, base, _user(request)), status=201)

    async def listing(request: web.Request) -> web.Response:
        return web.json_response(service.trainers())

    async def show(request: web.Request) -> web.Response:
        return web.json_response(service.show(request.match_info["trainer"]))

    async def cancel(request: web.Request) -> web.Response:
        return web.json_response(await service.cancel(request.match_info["trainer"]))

    async def logs(request: web.Request) -> web.Response:
        after = _offsets(request.query.get("after", "{}"))
        lines = _number(request, "lines", 20)
        trainer = request.match_info["trainer"]
        return web.json_response(service.logs(trainer, request.query.get("node"), lines, after))

    async def pool(request: web.Request) -> web.Response:
        return web.json_response(service.pool())

    async def rows(request: web.Request) -> web.Response:
        what, trainer = request.match_info["what"], request.query.get("trainer")
        return web.json_response(service.rows(what, _number(request, "limit", 20), trainer))

    async def status(request: web.Request) -> web.Response:
        return web.json_response(service.status())

    app.add_routes(
        [
            web.get("/metrics", _metrics_of(service)),
            web.post("/v1/trainers", submit),
            web.get("/v1/trainers", listing),
            web.get("/v1/trainers/{trainer}", show),
            web.delete("/v1/trainers/{trainer}", cancel),
            web.get("/v1/trainers/{trainer}/logs", logs),
            web.get("/v1/pool", pool),
            web.get("/v1/{what:events|pauses|reports}", rows),
            web.get("/v1/status", status),
            web.get("/v1/agent", hub.serve),
        ]
    )
    return app


async def export(service: Service, port: int) -> web.AppRunner:
    """Serve /metrics, and nothing else, on a port of this machine's loopback address.

    Raises:
        BftrainerError: the port is taken.
    """
    app = web.Application()
    app.router.add_get("/metrics", _metrics_of(service))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, port).start()
    except OSError as error:
        await runner.cleanup()
        raise BftrainerError(f"metrics_port {port}: {error.strerror}; take another") from error
    return runner


def _metrics_of(service: Service) -> Handler:
    async def metrics(request: web.Request) -> web.Response:
        from bftrainer.api.metrics import CONTENT_TYPE, render  # noqa: PLC0415  few ask

        text = render(service.status(), service.trainers())
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    return metrics


async def listen(app: web.Application, socket: Path) -> web.AppRunner:
    """Serve `app` on a Unix socket for its owner only; a stale socket file is replaced.

    Raises:
        BftrainerError: the path is too long for a socket.
    """
    if len(str(socket).encode()) > 100:
        raise BftrainerError(f"{socket}: a socket's path has at most 100 bytes; take a shorter --state-dir")
    with contextlib.suppress(FileNotFoundError):
        socket.unlink()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    socket.chmod(0o600)
    return runner


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except UnknownTrainerError as error:
        return web.json_response({"error": str(error)}, status=404)
    except BftrainerError as error:
        return web.json_response({"error": str(error)}, status=400)


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except (ValueError, UnicodeDecodeError) as error:
        raise BftrainerError(f"the request's body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise BftrainerError("the request's body must be a JSON object")
    return body


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or "\0" in value:
        raise BftrainerError(f"{key!r} must be a text")
    return value


def _number(request: web.Request, key: str, default: int) -> int:
    text = request.query.get(key, str(default))
    if not text.isdecimal() or not 0 < int(text) <= MAX_ROWS:
        raise BftrainerError(f"{key}={text}: give a whole number from 1 to {MAX_ROWS}")
    return int(text)


def _offsets(text: str) -> dict[str, int]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(v, int) and v >= 0 for v in found.values()):
        raise BftrainerError("after: give a JSON object of node and offset")
    return found


def _user(request: web.Request) -> str:
    """Who is at the other end of the Unix socket, as the kernel says."""
    peer = request.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket_.SOL_SOCKET, socket_.SO_PEERCRED, 12))
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
