"""Probes for a supervisor: whether the daemon is alive, and whether it is ready."""

from __future__ import annotations

from aiohttp import web

from bftrainer.api.service import Service


def probes(service: Service) -> list[web.RouteDef]:
    """Return the routes of the probes. Both answer 200, or 503 with the reasons.

    /healthz: is the daemon alive? If not, restart it. /readyz: can it do its work? If not, wait, or read why.
    """

    async def alive(request: web.Request) -> web.Response:
        """Answer whether the daemon is alive."""
        return _answer("alive", "stuck", service.liveness_problems())

    async def ready(request: web.Request) -> web.Response:
        """Answer whether the daemon can do its work, with what is wrong besides."""
        warnings = service.readiness_warnings()
        return _answer("ready", "not ready", service.readiness_problems(), warnings=warnings)

    return [web.get("/healthz", alive), web.get("/readyz", ready)]


def _answer(good: str, bad: str, reasons: list[str], **more: list[str]) -> web.Response:
    """Answer with the state in a word, and the reasons if it is bad."""
    state = {"state": bad if reasons else good, "reasons": reasons, **more}
    return web.json_response(state, status=503 if reasons else 200)
