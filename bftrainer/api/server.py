"""The HTTP server: JSON in and out, every answer from one call of the service."""

from __future__ import annotations

import contextlib
import os
import socket as socket_
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from bftrainer.api.callers import NOBODY, SCHEME, Caller, Callers, NotAllowedError, StrangerError
from bftrainer.api.hub import Hub
from bftrainer.errors import BftrainerError

MAX_BODY = 1024 * 1024
MAX_ROWS = 10_000
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK = "127.0.0.1"


class Service(Protocol):
    """What the daemon answers, to each caller what they may know.

    Errors that a client can mend are `BftrainerError`s.
    """

    async def submit(self, caller: Caller, text: str, name: str, base: str) -> dict[str, Any]: ...
    def trainers(self, caller: Caller) -> list[dict[str, Any]]: ...
    def show(self, caller: Caller, trainer: str) -> dict[str, Any]: ...
    async def cancel(self, caller: Caller, trainer: str) -> dict[str, Any]: ...
    def pool(self, caller: Caller) -> dict[str, Any]: ...
    def rows(self, caller: Caller, what: str, limit: int, trainer: str | None) -> list[dict[str, Any]]: ...
    def status(self, caller: Caller) -> dict[str, Any]: ...
    def administer(self, caller: Caller, order: str) -> dict[str, Any]: ...
    def metrics(self, caller: Caller) -> bytes: ...
    def ailments(self) -> list[str]: ...
    def hindrances(self) -> list[str]: ...


class UnknownTrainerError(BftrainerError, LookupError):
    """The caller has no trainer of this name or number; whether somebody else has is not told."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(service: Service, hub: Hub, callers: Callers) -> web.Application:
    """All routes, under /v1; what Prometheus reads under /metrics; probes."""
    app = web.Application(middlewares=[errors], client_max_size=MAX_BODY)

    async def submit(request: web.Request) -> web.Response:
        caller = await callers.of(request)
        body = await _body(request)
        text, name, base = (_text(body, key) for key in ("spec", "name", "base"))
        return web.json_response(await service.submit(caller, text, name, base), status=201)

    async def listing(request: web.Request) -> web.Response:
        return web.json_response(service.trainers(await callers.of(request)))

    async def show(request: web.Request) -> web.Response:
        caller = await callers.of(request)
        return web.json_response(service.show(caller, request.match_info["trainer"]))

    async def cancel(request: web.Request) -> web.Response:
        caller = await callers.of(request)
        return web.json_response(await service.cancel(caller, request.match_info["trainer"]))

    async def pool(request: web.Request) -> web.Response:
        return web.json_response(service.pool(await callers.of(request)))

    async def rows(request: web.Request) -> web.Response:
        caller = await callers.of(request)
        what, trainer = request.match_info["what"], request.query.get("trainer")
        return web.json_response(service.rows(caller, what, _number(request, "limit", 20), trainer))

    async def status(request: web.Request) -> web.Response:
        return web.json_response(service.status(await callers.of(request)))

    async def administer(request: web.Request) -> web.Response:
        caller = await callers.of(request)
        return web.json_response(service.administer(caller, request.match_info["order"]))

    async def metrics(request: web.Request) -> web.Response:
        try:
            caller = await callers.of(request)
        except (StrangerError, NotAllowedError):
            caller = NOBODY
        return metrics_response(service, caller)

    app.add_routes(
        [
            web.get("/metrics", metrics),
            web.post("/v1/trainers", submit),
            web.get("/v1/trainers", listing),
            web.get("/v1/trainers/{trainer}", show),
            web.delete("/v1/trainers/{trainer}", cancel),
            web.get("/v1/pool", pool),
            web.get("/v1/{what:events|pauses|reports}", rows),
            web.get("/v1/status", status),
            web.post("/v1/admin/{order:pause|drain|resume}", administer),
            web.get("/v1/agent", hub.serve),
            *probes(service),
        ]
    )
    return app


async def export(service: Service, port: int, caller: Caller) -> web.AppRunner:
    """Serve /metrics as `caller` may read them, and probes, on a port of the loopback address.

    Raises:
        BftrainerError: the port is taken.
    """

    async def metrics(request: web.Request) -> web.Response:
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
    """Serve `app` on a bound socket: to agents, which prove to know their pilots' secrets, and to users."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    return runner


def bind(address: str) -> socket_.socket:
    """A listening socket at host:port; port 0 takes any that is free.

    Raises:
        BftrainerError: the address is not this machine's, or the port is taken.
    """
    host, _, port = address.rpartition(":")
    try:
        found = socket_.getaddrinfo(host.strip("[]"), int(port), type=socket_.SOCK_STREAM)
        return socket_.create_server(found[0][4][:2], family=found[0][0])
    except (OSError, ValueError, OverflowError) as error:
        raise BftrainerError(f"listen {address}: {error}; give host:port of this machine") from error


def metrics_response(service: Service, caller: Caller) -> web.Response:
    return web.Response(body=service.metrics(caller), headers={"Content-Type": METRICS_TYPE})


def probes(service: Service) -> list[web.RouteDef]:
    """/healthz: whether the daemon is alive (else restart it); /readyz: whether it can do its work (else
    wait, or look). Both answer 200, or 503 with the reasons."""

    def probe(path: str, good: str, bad: str, reasons: Callable[[], list[str]]) -> web.RouteDef:
        async def answer(request: web.Request) -> web.Response:
            found = reasons()
            state = {"state": bad if found else good, "reasons": found}
            return web.json_response(state, status=503 if found else 200)

        return web.get(path, answer)

    return [
        probe("/healthz", "alive", "stuck", service.ailments),
        probe("/readyz", "ready", "not ready", service.hindrances),
    ]


async def listen(app: web.Application, socket: Path, *, for_all: bool) -> web.AppRunner:
    """Serve `app` on a Unix socket, for its owner only or for all users; a stale socket file is replaced.

    Raises:
        BftrainerError: there can be no socket, or all users are to reach it and cannot.
    """
    if len(str(socket).encode()) > 100:
        raise BftrainerError(f"{socket}: a socket's path has at most 100 bytes; take a shorter one")
    if for_all:
        _require_way_to(socket.parent)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    listener = socket_.socket(socket_.AF_UNIX, socket_.SOCK_STREAM)
    before = os.umask(0o111 if for_all else 0o177)  # it has its rights from its first moment on
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
    """Raises `BftrainerError` where not everybody can go to a folder."""
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


STATUS_OF: tuple[tuple[type[BftrainerError], int], ...] = (
    (StrangerError, 401),
    (NotAllowedError, 403),
    (UnknownTrainerError, 404),
    (BftrainerError, 400),
)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BftrainerError as error:
        status = next(code for kind, code in STATUS_OF if isinstance(error, kind))
        headers = {"WWW-Authenticate": SCHEME} if status == 401 else {}
        return web.json_response({"error": str(error)}, status=status, headers=headers)
    except web.HTTPRequestEntityTooLarge:
        said = f"the request is too large; at most {MAX_BODY} bytes"
        return web.json_response({"error": said}, status=413)
    except web.HTTPException as error:  # no such route, or not with this method
        said = f"{request.method} {request.path}: {error.reason}"
        return web.json_response({"error": said}, status=error.status, headers=allowed(error))


def allowed(error: web.HTTPException) -> dict[str, str]:
    return {key: value for key, value in error.headers.items() if key == "Allow"}


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
