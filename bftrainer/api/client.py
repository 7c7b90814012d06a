"""The client: one request to a daemon, on its Unix socket or over TCP."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import random
import socket
import struct
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from bftrainer.api.listing import LEFT_OUT, MAX_ENDED, MAX_ROWS, NEXT, RETRIED, WAITING_LEFT_OUT
from bftrainer.api.munge import SCHEME, Munge, digest
from bftrainer.api.received import Allowance, OddAnswerError, ResponseLimits, number
from bftrainer.errors import BftrainerError

TIMEOUT_S = 30.0
"""An answer may take so long, with all tries."""
SILENT_S = 60.0
"""A stream that brings nothing for so long has lost its daemon, which sends beats."""
RETRY_S = 1.0
"""When a request is sent again that the daemon did not take."""
MOST_SAID = 20_000
"""So many characters of an error of the daemon are shown."""

Answered = TypeVar("Answered")


class DaemonError(BftrainerError):
    """The daemon cannot be reached, or it refused the request."""


@dataclass(frozen=True, slots=True)
class TrainerList:
    """Trainers in order of arrival, and how many are left out of those that wait and that have ended."""

    trainers: list[dict[str, Any]]
    waiting_left_out: int
    ended_left_out: int


class Client:
    """Calls a daemon at the path of a Unix socket, or at host:port with a credential of munge."""

    def __init__(
        self, where: Path | str, munge: Munge | None = None, bounds: ResponseLimits | None = None
    ) -> None:
        bounds = bounds or ResponseLimits()
        self._where, self._munge, self._most_mb = where, munge, bounds.most_mb
        self._patience_s = bounds.patience_s or TIMEOUT_S

    def call(self, method: str, path: str, *, body: Any = None, **query: Any) -> Any:
        """Send one request to the route `path` under /v1 and return the answer's JSON.

        Raises:
            DaemonError: No daemon answers, what answers is none or sends too much, or the daemon refuses:
                then the message is the daemon's.
            MungeError: munge makes no credential.
        """
        return self._run(self._call(method, path, body, query, Allowance(self._most_mb)))[0]

    def trainers(self, ended: int, *, every: bool = False) -> TrainerList:
        """Return the trainers that have not ended and `ended` of those that ended last, in order of arrival.

        Of those that wait the daemon may leave out some. With `every`, all trainers are returned, page by
        page. Raises as `call`.
        """
        try:
            return self._trainers(ended, every, Allowance(self._most_mb))
        except OddAnswerError as error:
            raise self._odd(error) from error

    def study(self, name: str, **query: Any) -> dict[str, Any]:
        """Return all about a study, by name or number; its `table` has the trials, read page by page.

        Raises as `call`.
        """
        allowance = Allowance(self._most_mb)
        try:
            found, headers = self._page(f"studies/{name}", query, allowance)
            table = list(found["table"])
            while after := headers.get(NEXT):
                page, headers = self._page(f"studies/{found['id']}", {**query, "after": after}, allowance)
                if not page["table"]:
                    break
                table += page["table"]
        except (OddAnswerError, LookupError, TypeError) as error:
            raise self._odd(error) from error
        return {**found, "table": table}

    def rows(self, what: str, limit: int, trainer: str | None = None) -> list[dict[str, Any]]:
        """Return the last `limit` "events", "pauses" or "reports", oldest first; of one trainer if given.

        Raises as `call`.
        """
        allowance = Allowance(self._most_mb)
        pages = list[list[dict[str, Any]]]()  # the latest first
        left, before = limit, 0
        try:
            while left > 0:
                asked = min(MAX_ROWS, left)
                query = {"limit": asked, "trainer": trainer, "before": before or None}
                page, headers = self._page(what, query, allowance)
                pages.append(page)
                left, before = left - len(page), number(headers, NEXT)
                if len(page) == asked and not before:
                    before = int(page[0]["id"])
                if not (page and before):
                    break
        except OddAnswerError as error:
            raise self._odd(error) from error
        return [row for page in reversed(pages) for row in page]

    def _trainers(self, ended: int, every: bool, allowance: Allowance) -> TrainerList:
        found: dict[int, dict[str, Any]] = {}  # by id: what ends meanwhile moves others to the next page
        query = {"limit": MAX_ENDED if every else min(MAX_ENDED, ended), "skip": 0, "after": 0}
        page, headers = self._page("trainers", query, allowance)
        found |= {trainer["id"]: trainer for trainer in page}
        waiting, over = (number(headers, name) for name in (WAITING_LEFT_OUT, LEFT_OUT))
        after = number(headers, NEXT)
        while every and page and after:
            page, headers = self._page("trainers", {"limit": 0, "after": after}, allowance)
            found |= {trainer["id"]: trainer for trainer in page}
            waiting, after = number(headers, WAITING_LEFT_OUT), number(headers, NEXT)
        skip = sum(trainer["ended_at"] is not None for trainer in found.values())
        while over and (every or skip < ended):
            limit = MAX_ENDED if every else min(MAX_ENDED, ended - skip)
            page, headers = self._page("trainers", {"limit": limit, "skip": skip}, allowance)
            found |= {trainer["id"]: trainer for trainer in page}
            skip, over = skip + len(page), number(headers, LEFT_OUT) if page else 0
        return TrainerList([found[id_] for id_ in sorted(found)], waiting, over)

    def _page(self, path: str, query: dict[str, Any], allowance: Allowance) -> tuple[Any, Mapping[str, str]]:
        allowance.check_time()
        return self._run(self._call("GET", path, None, query, allowance))

    def _run(self, call: Coroutine[Any, Any, Answered]) -> Answered:
        with asyncio.Runner(loop_factory=partial(_PatientLoop, self._patience_s)) as runner:
            return runner.run(call)

    async def _call(
        self, method: str, path: str, body: Any, query: dict[str, Any], allowance: Allowance
    ) -> tuple[Any, Mapping[str, str]]:
        """Send a request; where the daemon takes none at the moment, again and again in time."""
        params = {key: str(value) for key, value in query.items() if value is not None}
        url = self._url(path, params)
        try:
            data = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            quoted = ascii(error.object[max(0, error.start - 40) : error.end])
            raise DaemonError(f"{quoted} is no text in UTF-8; rename the file or folder") from error
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                answer, found = await self._send(method, url, data, deadline - time.monotonic(), allowance)
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

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, query: Mapping[str, str], data: bytes = b""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request to a path under /v1; its answer is read as it comes, whatever its status is.

        Raises:
            DaemonError: No daemon answers, or it falls silent.
            MungeError: munge makes no credential.
        """
        url, connector = self._url(path, query), self._connector()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._patience_s, sock_read=SILENT_S)
        session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        try:
            async with (
                session,
                session.request(
                    method,
                    url,
                    data=data,
                    headers=await self._headers(method, url, data),
                    allow_redirects=False,
                ) as answer,
            ):
                yield answer
        except TimeoutError as error:
            raise DaemonError(f"the daemon at {self._where} has fallen silent; see its log") from error
        except (aiohttp.ClientConnectorError, FileNotFoundError) as error:
            raise DaemonError(self._unanswered(error)) from error
        except aiohttp.ClientError as error:
            raise DaemonError(f"the daemon at {self._where} has closed the connection") from error

    def _url(self, path: str, query: Mapping[str, str]) -> URL:
        there = "bftrainer" if isinstance(self._where, Path) else self._where
        return URL(f"http://{there}").joinpath("v1", *path.split("/")).update_query(query)

    def _connector(self) -> aiohttp.UnixConnector | None:
        return aiohttp.UnixConnector(path=str(self._where)) if isinstance(self._where, Path) else None

    async def _headers(self, method: str, url: URL, data: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._munge is not None:
            credential = await self._munge.encode(digest(method, url.raw_path_qs, data))
            headers["Authorization"] = f"{SCHEME} {credential}"
        return headers

    async def _send(
        self, method: str, url: URL, data: bytes, left_s: float, allowance: Allowance
    ) -> tuple[aiohttp.ClientResponse, Any]:
        """Send one request; return the answer and its JSON.

        Raises:
            _BusyError: Nothing was done, and the request can be sent again.
            DaemonError: There is no answer, or none of a daemon.
        """
        headers, connector = await self._headers(method, url, data), self._connector()
        timeout = aiohttp.ClientTimeout(total=max(0.1, left_s))
        order = "" if method == "GET" else "; the order may have been carried out: see bftrainer list"
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session,
                session.request(method, url, data=data, headers=headers, allow_redirects=False) as answer,
            ):
                return answer, await allowance.read(answer)
        except TimeoutError as error:
            raise DaemonError(
                f"the daemon at {self._where} has not answered within {self._patience_s:g} s: it is busy or "
                f"stuck; try again, or see its log{order}"
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
        except (aiohttp.ClientError, OddAnswerError, ValueError, RecursionError) as error:
            raise self._odd(error) from error

    def _odd(self, error: Exception) -> DaemonError:
        said = str(error) or type(error).__name__
        return DaemonError(f"what answers at {self._where} does not answer like a daemon: {said[:300]}")

    def _unanswered(self, error: Exception) -> str:
        if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, PermissionError):
            return f"the daemon at {self._where} is not for you: its socket is its owner's"
        if isinstance(self._where, Path):
            return (
                f"no daemon answers at {self._where}; start one with: bftrainer daemon (without Slurm: "
                "bftrainer daemon --scheduler local), or name another --state-dir"
            )
        return f"no daemon answers at {self._where}; is the setting server right? It names listen_users there"


class _PatientLoop(asyncio.SelectorEventLoop):
    """Waits for its turn where many clients connect to a Unix socket; asyncio's own loop gives up at once."""

    def __init__(self, patience_s: float) -> None:
        super().__init__()
        self._patience_s = patience_s

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect a socket, which is in the queue meanwhile."""
        if sock.family != socket.AF_UNIX:
            await super().sock_connect(sock, address)
            return
        patience = struct.pack("ll", math.ceil(self._patience_s), 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        sock.setblocking(True)
        try:
            await self.run_in_executor(None, sock.connect, address)
        finally:
            sock.setblocking(False)


class _BusyError(Exception):
    """The daemon did not take the request."""


def _said(found: Any) -> str:
    """The daemon's own words in an answer that is an error; empty if it has none."""
    said = found.get("error") if isinstance(found, dict) else None
    return said[:MOST_SAID] if isinstance(said, str) else ""
