"""The command line's side: one request to the daemon's socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from bftrainer.errors import BftrainerError

TIMEOUT_S = 30.0


class DaemonError(BftrainerError):
    """The daemon cannot be reached, or refused."""


class Client:
    """Calls a daemon; every method of the API is `call`ed by its route."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def call(self, method: str, path: str, *, body: Any = None, **query: Any) -> Any:
        """One request; returns the answer's JSON.

        Raises:
            DaemonError: nobody listens, or the daemon's own words for what is wrong.
        """
        return asyncio.run(self._call(method, path, body, query))

    async def _call(self, method: str, path: str, body: Any, query: dict[str, Any]) -> Any:
        params = {key: str(value) for key, value in query.items() if value is not None}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(path=str(self._socket)), timeout=timeout
                ) as session,
                session.request(method, f"http://bftrainer/v1/{path}", json=body, params=params) as answer,
            ):
                found = await answer.json(content_type=None)
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError, FileNotFoundError) as error:
            raise DaemonError(
                f"no daemon answers at {self._socket}; start one with: bftrainer daemon --scheduler local "
                "(or name another --state-dir)"
            ) from error
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            raise DaemonError(
                f"the daemon at {self._socket} does not answer: {error or 'time-out'}"
            ) from error
        if answer.status >= 400:
            said = found.get("error") if isinstance(found, dict) else None
            raise DaemonError(said or f"the daemon answered {answer.status} to {method} {path}")
        return found
