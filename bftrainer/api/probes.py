"""The HTTP server: JSON in and out, every answer from one call of the service."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from bftrainer.api.service import Service


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
        probe("/healthz", "alive", "stuck", service.liveness_problems),
        probe("/readyz", "ready", "not ready", service.readiness_problems),
    ]
