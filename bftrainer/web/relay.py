"""Passes the page's questions on to the daemon, as the user who runs this process, and the answers back.

Only what the page needs is passed on: each path is one of a list, and numbers in it are numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

from bftrainer import worker_output
from bftrainer.api.follow import Ask
from bftrainer.api.listing import LEFT_OUT, NEXT, WAITING_LEFT_OUT
from bftrainer.web.access import HEADERS, Access, NotLetInError
from bftrainer.web.shared_feed import PIECE, SharedFeed, told

READERS = 200
"""Pages that follow the feed at once, at most."""
TAKEN_S = 60.0
"""Seconds after which a browser that takes nothing is cut off."""
JSON = "application/json"
LINES = 200
"""Last lines of each node's output that are shown at first."""
MOST_QUERY = 20
MOST_DIGITS = 16
ASKED = (
    *("trainers", "status", "studies", "admin/impact", "events", "pauses", "reports"),
    *(r"trainers/{id:[0-9]{1,18}}", r"studies/{id:[0-9]{1,18}}"),
)
"""The paths under /v1 that the page may ask."""


class Relay:
    """Asks the daemon for the page; without `orders`, nothing is changed and no output is read."""

    def __init__(self, ask: Ask, access: Access, *, orders: bool) -> None:
        self._ask, self._access, self._orders = ask, access, orders
        self._feed, self._readers = SharedFeed(ask), 0

    def table(self) -> list[web.RouteDef]:
        """Return the routes."""
        routes = [web.get("/v1/feed", self.follow), *(web.get(f"/v1/{path}", self.ask) for path in ASKED)]
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
        path = request.path.removeprefix("/v1/")
        query = dict(list(request.query.items())[:MOST_QUERY])
        async with self._ask(request.method, path, query, await request.read()) as answer:
            kept = (NEXT, LEFT_OUT, WAITING_LEFT_OUT)
            headers = {name: answer.headers[name] for name in kept if name in answer.headers}
            content = {"Content-Type": answer.headers.get("Content-Type", JSON)}
            response = web.StreamResponse(status=answer.status, headers=HEADERS | headers | content)
            return await _sent(request, response, answer.content.iter_chunked(PIECE))

    async def follow(self, request: web.Request) -> web.StreamResponse:
        """Pass the daemon's feed on."""
        self._access.check_session(request)
        if self._readers >= READERS:
            raise NotLetInError(f"{READERS} pages are open, the most here; close one", 429)
        log = self._feed.join()
        self._readers += 1
        try:
            while not (log.pieces or log.ended):
                await log.news.wait()
            content = {"Content-Type": "text/event-stream" if log.status == 200 else JSON}
            response = web.StreamResponse(status=log.status or 503, headers=HEADERS | content)
            return await _sent(request, response, told(log))
        finally:
            self._readers -= 1
            self._feed.leave(log)

    async def logs(self, request: web.Request) -> web.Response:
        """Return the last lines that a trainer's workers printed, or what came after `ends` (node=offset)."""
        self._access.check_session(request)
        path = f"trainers/{request.match_info['id']}"
        async with self._ask("GET", path, {}) as answer:
            shown = await answer.json()
        if answer.status != 200:
            return web.json_response(shown, status=answer.status)
        known = (
            (name, value) for name, value in request.query.items() if value.isascii() and value.isdecimal()
        )
        ends = {name: int(value) for name, value in known if len(value) < MOST_DIGITS}
        found = await asyncio.to_thread(_output, shown, ends)
        return web.json_response(found)


async def _sent(
    request: web.Request, response: web.StreamResponse, pieces: AsyncIterator[bytes]
) -> web.StreamResponse:
    """Send an answer; a browser that takes nothing for `TAKEN_S` is cut off."""
    response.force_close()
    try:
        first = await anext(pieces, b"")  # what fails here has an answer of its own
        async with asyncio.timeout(TAKEN_S):
            await response.prepare(request)
            await response.write(first)
        async for piece in pieces:
            async with asyncio.timeout(TAKEN_S):
                await response.write(piece)
        async with asyncio.timeout(TAKEN_S):
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return response


def _output(shown: dict[str, Any], ends: dict[str, int]) -> dict[str, dict[str, object]]:
    folder, of = Path(shown["log_dir"]), worker_output.owner(shown["user"])
    if ends:
        found = worker_output.added(folder, ends, of=of)
    else:
        found = worker_output.last_lines(folder, LINES, of=of)
    return {
        name: {"text": part.text, "end": part.end, "at": _printed_at(folder / f"{name}.log")}
        for name, part in found.items()
    }


def _printed_at(path: Path) -> float | None:
    """Return when something was last printed there (Unix s); None: not known."""
    try:
        return path.lstat().st_mtime
    except OSError:  # it has just been removed
        return None
