"""An application that is served as the daemon serves it, on a Unix socket or a TCP port."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from bftrainer.api.transport.accept import Listener
from bftrainer.api.transport.admission import Admission, HttpLimits
from bftrainer.api.transport.listen import bind_unix

PLENTY = HttpLimits(total=500, each=100, per_second=None, timeout_s=20.0)


class Places(Admission):
    """Gives places, and remembers which bounds were hit by whom, and what failed."""

    def __init__(self, bounds: HttpLimits = PLENTY) -> None:
        self.hits: list[tuple[str, str]] = []
        self.failures: list[str] = []
        super().__init__(bounds, lambda bound, by, times: self.hits.append((bound, by)), self.failures.append)


@asynccontextmanager
async def serving(
    app: web.Application, at: Path | socket.socket, places: Admission | None = None
) -> AsyncIterator[Admission]:
    """Serve an application until the context is left, with the places that it gives."""
    places = places or Places()
    bound = bind_unix(at, for_all=False) if isinstance(at, Path) else at
    listener = Listener(app, bound, places)
    await listener.start()
    try:
        yield places
    finally:
        await listener.cleanup()
