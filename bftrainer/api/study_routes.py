"""The HTTP routes of studies."""

from __future__ import annotations

from aiohttp import web

from bftrainer.api.answers import Answers
from bftrainer.api.callers import Callers
from bftrainer.api.fields import body_of, number_of, text_of
from bftrainer.api.listing import ENDED, MAX_ENDED, dumps
from bftrainer.api.service import StudyService


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
        """Return all about one study."""
        caller = await self._callers.of(request)
        found = await self._service.show(caller, request.match_info["study"])
        return await self._answers.send(request, caller.user, found)

    async def order(self, request: web.Request) -> web.Response:
        """Pause a study, let it go on, or end it."""
        caller = await self._callers.of(request)
        info = request.match_info
        row = await self._service.order(caller, info["study"], info["order"])
        return web.json_response(row, dumps=dumps)
