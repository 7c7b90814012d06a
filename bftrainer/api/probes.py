"""Probes for a supervisor: whether the daemon is alive, and whether it is ready."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from bftrainer.api.errors import Handler
from bftrainer.api.service import Service


def probes(service: Service) -> list[web.RouteDef]:
    """Return the routes of the probes. Both answer 200, or 503 with the reasons.

    /healthz: is the daemon alive? If not, restart it. /readyz: can it do its work? If not, wait, or read why.
    """
    return [
        web.get("/healthz", _probe("alive", "stuck", service.liveness_problems)),
        web.get("/readyz", _probe("ready", "not ready", service.readiness_problems)),
    ]


def _probe(good: str, bad: str, problems: Callable[[], list[str]]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        """Answer with the state in a word, and the reasons if it is bad."""
        found = problems()
        state = {"state": bad if found else good, "reasons": found}
        return web.json_response(state, status=503 if found else 200)

    return answer
