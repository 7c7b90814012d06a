"""The HTTP routes of studies."""

from __future__ import annotations

from aiohttp import web

from bftrainer.api.answers import Answers
from bftrainer.api.callers import Callers
from bftrainer.api.fields import body_of, number_of, odd_request, real_of, text_of
from bftrainer.api.listing import ENDED, MAX_ENDED, dumps
from bftrainer.api.service import StudyService

MOST_POINTS = 1000
"""More than a trial's course has."""
MOST_TRIALS = 100_000
"""More than a study has."""


class StudyRoutes:
    """The handlers of the API on studies."""

    def __init__(self, service: StudyService, answers: Answers, callers: Callers) -> None:
        self._service, self._answers, self._callers = service, answers, callers

    def table(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.post("/v1/studies", self.submit),
            web.get("/v1/studies", self.listed),
            web.get("/v1/studies/{study}", self.show),
            web.post("/v1/studies/{study}/{order:pause|resume|cancel}", self.order),
            web.post("/v1/studies/{study}/priority", self.prioritise),
            web.post("/v1/studies/{study}/trials", self.add),
        ]

    async def submit(self, request: web.Request) -> web.Response:
        """Submit the study in the body: `spec` (YAML), its file's `name`, and `base`, its folder."""
        caller = await self._callers.of(request)
        body = await body_of(request)
        text, name, base = (text_of(body, key) for key in ("spec", "name", "base"))
        row = await self._service.submit(caller, text, name, base)
        return web.json_response(row, status=201, dumps=dumps)

    async def listed(self, request: web.Request) -> web.StreamResponse:
        """List studies, with the last `limit` of those that have ended."""
        caller = await self._callers.of(request)
        ended = number_of(request, "limit", ENDED, 0, MAX_ENDED)
        return await self._answers.send(request, caller.user, await self._service.listed(caller, ended))

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Return all about one study, with `trials` of its trials, and the last `course` points of each; or
        with all of them, those `after` a number if that is given."""
        caller = await self._callers.of(request)
        points = number_of(request, "course", MOST_POINTS, 0, MOST_POINTS)
        given = "trials" in request.query
        most = number_of(request, "trials", MOST_TRIALS, 0, MOST_TRIALS) if given else None
        after = number_of(request, "after", 0, 0, MOST_TRIALS) if "after" in request.query else -1
        found = await self._service.show(caller, request.match_info["study"], points, most, after)
        return await self._answers.send(request, caller.user, found)

    async def order(self, request: web.Request) -> web.StreamResponse:
        """Pause a study, let it go on, or end it."""
        caller = await self._callers.of(request)
        info = request.match_info
        row = await self._service.order(caller, info["study"], info["order"])
        return await self._answers.send(request, caller.user, row)

    async def add(self, request: web.Request) -> web.StreamResponse:
        """Add as many `trials` as the body says, and have the next ones try its `points`."""
        caller = await self._callers.of(request)
        body = await body_of(request)
        trials, points = body.get("trials", 0), body.get("points", [])
        if isinstance(trials, bool) or not isinstance(trials, int) or not 0 <= trials <= MOST_TRIALS:
            raise odd_request(f"'trials' must be a whole number from 0 to {MOST_TRIALS:,}")
        if not isinstance(points, list):
            raise odd_request("'points' must be a list of objects, such as {\"lr\": 0.1}")
        if not trials and not points:
            raise odd_request("nothing to add; give trials or points")
        row = await self._service.add(caller, request.match_info["study"], trials, points)
        return await self._answers.send(request, caller.user, row)

    async def prioritise(self, request: web.Request) -> web.StreamResponse:
        """Give a study the `priority` in the body."""
        caller = await self._callers.of(request)
        to = real_of(await body_of(request), "priority")
        row = await self._service.prioritise(caller, request.match_info["study"], to)
        return await self._answers.send(request, caller.user, row)
