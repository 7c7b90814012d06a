"""Passes the page's questions on to the daemon, as the user who runs this process, and the answers back.

Only what the page needs is passed on: each path is one of a list, and numbers in it are numbers.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import web

from bftrainer import worker_output
from bftrainer.api.client import Client
from bftrainer.api.listing import LEFT_OUT, NEXT, WAITING_LEFT_OUT
from bftrainer.web.access import HEADERS, Access, NotLetInError

STREAMS = 12
"""Pages that follow the feed at once: the daemon has 16 streams for one user."""
TAKEN_S = 60.0
"""A browser that takes nothing for so long (s) is cut off."""
PIECE = 64 * 1024
LINES = 200
"""So many last lines of each node's output are shown at first."""
MOST_QUERY = 20
MOST_DIGITS = 16
ASKED = (
    *("feed", "trainers", "status", "studies", "admin/impact", "events", "pauses", "reports"),
    *(r"trainers/{id:[0-9]{1,18}}", r"studies/{id:[0-9]{1,18}}"),
)
"""The paths under /v1 that the page may ask."""


class Relay:
    """Asks the daemon for the page; without `orders`, nothing is changed and no output is read."""

    def __init__(self, client: Client, access: Access, *, orders: bool) -> None:
        self._client, self._access, self._orders, self._streams = client, access, orders, 0

    def table(self) -> list[web.RouteDef]:
        """Return the routes."""
        routes = [web.get(f"/v1/{path}", self.ask) for path in ASKED]
        if self._orders:
            routes += [
                web.delete(r"/v1/trainers/{id:[0-9]{1,18}}", self.ask),
                web.post(r"/v1/trainers/{id:[0-9]{1,18}}/priority", self.ask),
                web.get(r"/logs/{id:[0-9]{1,18}}", self.logs),
            ]
        return routes

    async def ask(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on, and its answer back."""
        self._access.check_session(request)
        follows = request.path == "/v1/feed"
        if follows and self._streams >= STREAMS:
            raise NotLetInError(f"{STREAMS} pages are open, the most here; close one", 429)
        self._streams += follows
        try:
            return await self._passed(request)
        finally:
            self._streams -= follows

    async def _passed(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/v1/")
        query = dict(list(request.query.items())[:MOST_QUERY])
        async with self._client.stream(request.method, path, query, await request.read()) as answer:
            kept = (NEXT, LEFT_OUT, WAITING_LEFT_OUT)
            headers = {name: answer.headers[name] for name in kept if name in answer.headers}
            content = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            response = web.StreamResponse(status=answer.status, headers=HEADERS | headers | content)
            response.force_close()
            try:
                async with asyncio.timeout(TAKEN_S):
                    await response.prepare(request)
                async for piece in answer.content.iter_chunked(PIECE):
                    async with asyncio.timeout(TAKEN_S):
                        await response.write(piece)
                async with asyncio.timeout(TAKEN_S):
                    await response.write_eof()
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
            return response

    async def logs(self, request: web.Request) -> web.Response:
        """Return the last lines that a trainer's workers printed, or what came after `ends` (node=offset)."""
        self._access.check_session(request)
        path = f"trainers/{request.match_info['id']}"
        async with self._client.stream("GET", path, {}) as answer:
            shown = await answer.json()
        if answer.status != 200:
            return web.json_response(shown, status=answer.status)
        known = (
            (name, value) for name, value in request.query.items() if value.isascii() and value.isdecimal()
        )
        ends = {name: int(value) for name, value in known if len(value) < MOST_DIGITS}
        found = await asyncio.to_thread(_output, shown, ends)
        return web.json_response(found)


def _output(shown: dict[str, Any], ends: dict[str, int]) -> dict[str, dict[str, object]]:
    folder, of = Path(shown["log_dir"]), worker_output.owner(shown["user"])
    if ends:
        found = worker_output.added(folder, ends, of=of)
    else:
        found = worker_output.last_lines(folder, LINES, of=of)
    return {name: {"text": part.text, "end": part.end} for name, part in found.items()}
