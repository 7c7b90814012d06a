"""The client: one request to a daemon, on its Unix socket or over TCP."""

from __future__ import annotations

import asyncio
import errno
import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from bftrainer.api.callers import SCHEME
from bftrainer.api.connection import RETRIED
from bftrainer.api.listing import LEFT_OUT, MAX_ENDED
from bftrainer.api.munge import Munge, digest
from bftrainer.errors import BftrainerError

TIMEOUT_S = 30.0
"""An answer may take so long, with all tries."""
RETRY_S = 1.0
"""When a request is sent again that the daemon did not take."""


class DaemonError(BftrainerError):
    """The daemon cannot be reached, or it refused the request."""


class Client:
    """Calls a daemon at the path of a Unix socket, or at host:port with a credential of munge."""

    def __init__(self, where: Path | str, munge: Munge | None = None) -> None:
        self._where, self._munge = where, munge

    def call(self, method: str, path: str, *, body: Any = None, **query: Any) -> Any:
        """Send one request to the route `path` under /v1 and return the answer's JSON.

        Raises:
            DaemonError: No daemon answers, or the daemon refuses; then the message is the daemon's.
            MungeError: munge makes no credential.
        """
        return asyncio.run(self._call(method, path, body, query))[0]

    def trainers(self, ended: int | None) -> tuple[list[dict[str, Any]], int]:
        """Return all trainers that have not ended and `ended` (None: all) of those that ended last.

        They come in order of arrival, with the number of those that ended and are left out. Raises as `call`.
        """
        found: dict[int, dict[str, Any]] = {}  # by id: what ends meanwhile moves others to the next page
        skip, left_out = 0, 0
        while True:
            limit = MAX_ENDED if ended is None else min(MAX_ENDED, ended - skip)
            query = {"limit": limit, "skip": skip}
            page, headers = asyncio.run(self._call("GET", "trainers", None, query))
            found |= {trainer["id"]: trainer for trainer in page}
            skip, left_out = skip + limit, int(headers.get(LEFT_OUT, 0))
            if not left_out or skip == ended:
                return [found[id_] for id_ in sorted(found)], left_out

    async def _call(
        self, method: str, path: str, body: Any, query: dict[str, Any]
    ) -> tuple[Any, Mapping[str, str]]:
        """Send a request; where the daemon takes none at the moment, again and again for `TIMEOUT_S`."""
        params = {key: str(value) for key, value in query.items() if value is not None}
        there = "bftrainer" if isinstance(self._where, Path) else self._where
        url = URL(f"http://{there}").joinpath("v1", *path.split("/")).update_query(params)
        data = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                answer, found = await self._send(method, url, data, deadline - time.monotonic())
            except _BusyError as error:
                refused = str(error)
            else:
                if answer.status not in RETRIED or "Retry-After" not in answer.headers:
                    break
                refused = _said(found) or f"status {answer.status}"
            wait_s = RETRY_S * random.uniform(1.0, 1.5)  # noqa: S311  clients do not all come back at once
            if time.monotonic() + wait_s > deadline:
                raise DaemonError(f"the daemon at {self._where} takes no requests of yours now: {refused}")
            await asyncio.sleep(wait_s)
        if answer.status >= 400:
            raise DaemonError(_said(found) or f"the daemon answered {answer.status} to {method} {path}")
        return found, answer.headers

    async def _send(
        self, method: str, url: URL, data: bytes, left_s: float
    ) -> tuple[aiohttp.ClientResponse, Any]:
        """Send one request; return the answer and its JSON.

        Raises:
            _BusyError: Nothing was done, and the request can be sent again.
            DaemonError: There is no answer, or none of a daemon.
        """
        headers = {"Content-Type": "application/json"}
        if self._munge is not None:
            credential = await self._munge.encode(digest(method, url.raw_path_qs, data))
            headers["Authorization"] = f"{SCHEME} {credential}"
        connector = aiohttp.UnixConnector(path=str(self._where)) if isinstance(self._where, Path) else None
        timeout = aiohttp.ClientTimeout(total=max(0.1, left_s))
        order = "" if method == "GET" else "; the order may have been carried out: see bftrainer list"
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.request(method, url, data=data, headers=headers) as answer,
            ):
                return answer, await answer.json(content_type=None)
        except TimeoutError as error:
            raise DaemonError(
                f"the daemon at {self._where} has not answered within {TIMEOUT_S:g} s: it is busy or stuck; "
                f"try again, or see its log{order}"
            ) from error
        except (aiohttp.ClientConnectorError, FileNotFoundError) as error:
            if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.EAGAIN:
                raise _BusyError("too many clients wait for it") from error
            raise DaemonError(self._unanswered(error)) from error
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            never_there = isinstance(error, OSError) and error.errno == errno.ENOTCONN  # too many wait
            if method == "GET" or never_there:
                raise _BusyError("it closes the connection") from error
            raise DaemonError(
                f"the daemon at {self._where} closed the connection and gave no answer{order}"
            ) from error
        except (aiohttp.ClientError, ValueError) as error:
            said = str(error) or type(error).__name__
            raise DaemonError(
                f"what answers at {self._where} does not answer like a daemon: {said[:300]}"
            ) from error

    def _unanswered(self, error: Exception) -> str:
        if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, PermissionError):
            return f"the daemon at {self._where} is not for you: its socket is its owner's"
        if isinstance(self._where, Path):
            return (
                f"no daemon answers at {self._where}; start one with: bftrainer daemon (without Slurm: "
                "bftrainer daemon --scheduler local), or name another --state-dir"
            )
        return f"no daemon answers at {self._where}; is the setting server right? It names listen_users there"


class _BusyError(Exception):
    """The daemon did not take the request."""


def _said(found: Any) -> str:
    """The daemon's own words in an answer that is an error; empty if it has none."""
    said = found.get("error") if isinstance(found, dict) else None
    return said if isinstance(said, str) else ""
