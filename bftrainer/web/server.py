"""Serves the page on loopback: its files, a session for the token, and what the daemon answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from aiohttp import web

from bftrainer.api.fields import body_of, text_of
from bftrainer.api.follow import Ask
from bftrainer.api.transport.accept import Listener
from bftrainer.api.transport.admission import Admission, HttpLimits
from bftrainer.api.transport.connection import whole
from bftrainer.errors import BftrainerError
from bftrainer.web.access import Access, NotLetInError, guard
from bftrainer.web.pages import files
from bftrainer.web.relay import Relay

MOST_BODY = 4096
LIMITS = HttpLimits(total=256, each=256, per_second=None, timeout_s=10.0)
"""All connections come from this machine; one that is idle makes room for another."""


def application(access: Access, ask: Ask | None, *, record: bytes = b"") -> web.Application:
    """Return the server's application; without `ask` it shows the `record` (JSON) of a replay."""

    def file(kind: str, data: bytes) -> Callable[[web.Request], object]:
        async def send(request: web.Request) -> web.Response:
            return web.Response(body=data, headers={"Content-Type": kind})

        return send

    async def session(request: web.Request) -> web.Response:
        try:
            token = text_of(await body_of(request), "token")
        except BftrainerError as error:
            raise NotLetInError(str(error), 400) from error
        return web.json_response({"session": access.redeem(token)})

    async def about(request: web.Request) -> web.Response:
        access.check_session(request)
        return web.json_response({"public": access.public, "record": ask is None})

    async def recorded(request: web.Request) -> web.Response:
        access.check_session(request)
        return web.Response(body=record, content_type="application/json")

    app = web.Application(middlewares=[guard(access), whole], client_max_size=MOST_BODY)
    for address, (kind, data) in files().items():
        app.router.add_get(address, file(kind, data))  # type: ignore[arg-type]
    app.add_routes([web.post("/session", session), web.get("/about", about)])
    if ask is None:
        app.add_routes([web.get("/record", recorded)])
    else:
        app.add_routes(Relay(ask, access, orders=not access.public).table())
    return app


async def serve(bound: socket.socket, app: web.Application, listens: Callable[[], None]) -> None:
    """Serve an application on a bound socket, for ever; `listens` is called once it can be asked."""
    places = Admission(LIMITS, told=lambda bound, by, times: None, failed=lambda reason: None)
    listener = Listener(app, bound, places)
    await listener.start()
    try:
        listens()
        await asyncio.Event().wait()
    finally:
        await listener.cleanup()


def hosts_of(port: int, names: Sequence[str] = ()) -> frozenset[str]:
    """Return the values of the header Host by which the page may be asked for."""
    own = [f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")]
    return frozenset([*own, *(name.lower() for name in names)])
