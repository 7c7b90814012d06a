"""The HTTP server: JSON in and out, every answer from one call of the service."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from bftrainer.api.callers import NOBODY, Caller, Callers, NotAllowedError, StrangerError
from bftrainer.api.errors import MAX_BODY, errors
from bftrainer.api.listing import ENDED, LEFT_OUT, MAX_ENDED
from bftrainer.api.probes import probes
from bftrainer.api.service import Service
from bftrainer.errors import BftrainerError
from bftrainer.wire.hub import Hub

MAX_ROWS = 10_000
"""At most so many events, pauses or reports are in one answer."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def application(service: Service, hub: Hub, callers: Callers) -> web.Application:
    """All routes, under /v1; what Prometheus reads under /metrics; probes."""
    app = web.Application(middlewares=[errors], client_max_size=MAX_BODY)

    async def submit(request: web.Request) -> web.Response:
        caller = await callers.of(request)
        body = await _body(request)
        text, name, base = (_text(body, key) for key in ("spec", "name", "base"))
        return web.json_response(await service.submit(caller, text, name, base), status=201)

    async def listing(request: web.Request) -> web.Response:
        caller = await callers.of(request)
        ended = _number(request, "limit", ENDED, 0, MAX_ENDED)
        found, left_out = service.trainers(caller, ended, _number(request, "skip", 0, 0, 2**53))
        return web.json_response(found, headers={LEFT_OUT: str(left_out)})

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
        return web.json_response(
            service.rows(caller, what, _number(request, "limit", 20, 1, MAX_ROWS), trainer)
        )

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


def metrics_response(service: Service, caller: Caller) -> web.Response:
    return web.Response(body=service.metrics(caller), headers={"Content-Type": METRICS_TYPE})


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


def _number(request: web.Request, key: str, default: int, least: int, most: int) -> int:
    text = request.query.get(key, str(default))
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise BftrainerError(f"{key}={text}: give a whole number from {least} to {most}")
    return int(text)
