"""The HTTP routes: each reads a request, calls the service once and answers in JSON."""

from __future__ import annotations

from aiohttp import web

from bftrainer.api.callers import NOBODY, Caller, Callers, NotAllowedError, UnauthenticatedError
from bftrainer.api.errors import errors
from bftrainer.api.fields import MAX_DIGITS, body_of, number_of, odd_request, real_of, text_of
from bftrainer.api.listing import ENDED, MAX_ENDED, MAX_ROWS, dumps
from bftrainer.api.service import Json, Service
from bftrainer.api.stream import send_feed
from bftrainer.api.study_routes import StudyRoutes
from bftrainer.api.transport.connection import connection_of, whole
from bftrainer.wire.hub import Hub

MAX_DAYS = 366


def users_application(service: Service, callers: Callers, *, max_request: int) -> web.Application:
    """Return the server of users: the API under /v1, /metrics, and probes.

    `max_request`: the most bytes of a request's body.
    """
    app = web.Application(middlewares=[errors, whole], client_max_size=max_request)
    routes = Routes(service, callers)
    app.add_routes(
        [
            web.get("/metrics", routes.metrics),
            web.post("/v1/trainers", routes.submit),
            web.get("/v1/trainers", routes.trainers),
            web.get("/v1/trainers/{trainer}", routes.show),
            web.delete("/v1/trainers/{trainer}", routes.cancel),
            web.post("/v1/trainers/{trainer}/priority", routes.prioritise),
            web.get("/v1/pool", routes.pool),
            web.get("/v1/{what:events|pauses|reports}", routes.rows),
            web.get("/v1/status", routes.status),
            web.get("/v1/feed", routes.feed),
            web.get("/v1/admin/impact", routes.impact),
            web.post("/v1/admin/{order:pause|drain|resume}", routes.administer),
            *StudyRoutes(service.studies, service.answers, callers).table(),
            *probes(service),
        ]
    )
    return app


def agents_application(hub: Hub) -> web.Application:
    """Return the server of agents: their connections, and nothing else."""

    async def serve(request: web.Request) -> web.StreamResponse:
        """Serve an agent for as long as it stays. Until it has proven to be one, it can be sent away."""
        connection = connection_of(request)
        return await hub.serve(request, connection.proven if connection else lambda: None)

    app = web.Application(middlewares=[errors])
    app.add_routes([web.get("/v1/agent", serve)])
    return app


def metrics_application(service: Service, caller: Caller) -> web.Application:
    """Return the server of a port that everybody can read: /metrics, as far as `caller` may, and probes."""

    async def metrics(request: web.Request) -> web.StreamResponse:
        """Return the metrics."""
        return await send_metrics(request, service, caller)

    app = web.Application(middlewares=[errors, whole])
    app.add_routes([web.get("/metrics", metrics), *probes(service)])
    return app


class Routes:
    """The handlers of the API. Each may raise a `BftrainerError`, which `errors` turns into an answer."""

    def __init__(self, service: Service, callers: Callers) -> None:
        self._service, self._callers = service, callers

    async def submit(self, request: web.Request) -> web.Response:
        """Submit the trainer in the body: `spec` (YAML), its file's `name`, and `base`, its folder; it may
        `resume` another."""
        caller = await self._callers.of(request)
        body = await body_of(request)
        text, name, base = (text_of(body, key) for key in ("spec", "name", "base"))
        resume = None if body.get("resume") is None else text_of(body, "resume")
        return web.json_response(await self._service.submit(caller, text, name, base, resume), status=201)

    async def trainers(self, request: web.Request) -> web.StreamResponse:
        """List trainers: those that wait `after` an id, and `limit` of those that ended after `skip`."""
        caller = await self._callers.of(request)
        ended = number_of(request, "limit", ENDED, 0, MAX_ENDED)
        skip, after = (number_of(request, key, 0, 0, 2**53) for key in ("skip", "after"))
        found = await self._service.trainers(caller, ended, skip, after)
        return await self._service.answers.send(request, caller.user, found)

    async def show(self, request: web.Request) -> web.Response:
        """Return all about one trainer."""
        caller = await self._callers.of(request)
        return _json(await self._service.show(caller, request.match_info["trainer"]))

    async def cancel(self, request: web.Request) -> web.Response:
        """End a trainer; it writes a checkpoint first."""
        caller = await self._callers.of(request)
        return _json(await self._service.cancel(caller, request.match_info["trainer"]))

    async def prioritise(self, request: web.Request) -> web.Response:
        """Give a trainer the `priority` in the body."""
        caller = await self._callers.of(request)
        to = real_of(await body_of(request), "priority")
        return _json(await self._service.prioritise(caller, request.match_info["trainer"], to))

    async def pool(self, request: web.Request) -> web.StreamResponse:
        """List the nodes."""
        caller = await self._callers.of(request)
        return await self._service.answers.send(request, caller.user, await self._service.pool(caller))

    async def rows(self, request: web.Request) -> web.StreamResponse:
        """List the last `limit` events, pauses or reports, of one `trainer` if the query names it.

        With `before`, only those before the one with this id.
        """
        caller = await self._callers.of(request)
        what, trainer = request.match_info["what"], request.query.get("trainer")
        limit = number_of(request, "limit", 20, 1, MAX_ROWS)
        before = number_of(request, "before", 0, 0, 2**53) or None
        found = await self._service.rows(caller, what, limit, trainer, before)
        return await self._service.answers.send(request, caller.user, found)

    async def status(self, request: web.Request) -> web.Response:
        """Return the state of the daemon."""
        return _json(self._service.status(await self._callers.of(request)))

    async def feed(self, request: web.Request) -> web.StreamResponse:
        """Send what changes of `parts`, of all by default, as server-sent events."""
        caller = await self._callers.of(request)
        return await send_feed(request, caller, self._service.feed, self._service.answers)

    async def administer(self, request: web.Request) -> web.Response:
        """Carry out an admin's order: pause, drain or resume."""
        caller = await self._callers.of(request)
        return _json(self._service.administer(caller, request.match_info["order"]))

    async def impact(self, request: web.Request) -> web.Response:
        """Return what main jobs have waited in the last `days`, for an admin."""
        caller = await self._callers.of(request)
        return _json(await self._service.impact(caller, _days(request)))

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Return the metrics; a caller that is not known gets the totals only."""
        try:
            caller = await self._callers.of(request)
        except (UnauthenticatedError, NotAllowedError):
            caller = NOBODY
        return await send_metrics(request, self._service, caller)


async def send_metrics(request: web.Request, service: Service, caller: Caller) -> web.StreamResponse:
    """Answer with the metrics that a caller may read, in the text format of Prometheus."""
    return await service.answers.send(request, caller.user, await service.metrics(caller))


def _json(value: Json) -> web.Response:
    return web.json_response(value, dumps=dumps)


def _days(request: web.Request) -> float:
    """Return the `days` of the query, a week by default; raise `BftrainerError` if they are impossible."""
    text = request.query.get("days", "7")[:MAX_DIGITS]
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0.0 < days <= MAX_DAYS:
        raise odd_request(f"days={text!a}: give a number above 0, up to {MAX_DAYS}")
    return days


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
