"""The client: one request to a daemon, on its Unix socket or over TCP."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from bftrainer.api.listing import LEFT_OUT, MAX_ENDED, MAX_ROWS, NEXT, RETRIED, WAITING_LEFT_OUT
from bftrainer.api.munge import SCHEME, Munge, digest
from bftrainer.api.received import Allowance, BoundedSocket, OddAnswerError, ResponseLimits, number
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.reaching import (
    NO_ANSWER,
    NO_DAEMON,
    NO_DAEMONS_ANSWER,
    NO_SERVER,
    NO_UTF8,
    NOT_FOR_YOU,
    ORDER_UNANSWERED,
    TAKES_NONE,
)

TIMEOUT_S = 30.0
"""Seconds that an answer may take, with all tries."""
RETRY_S = 1.0
"""When a request is sent again that the daemon did not take."""
MOST_SAID = 20_000
"""Characters shown of an error of the daemon, at most."""

Headers = Mapping[str, str] | Message
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
"""Headers of each request, with a credential for a daemon on another machine."""


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
        self.where = where
        self.patience_s = bounds.patience_s or TIMEOUT_S
        """Seconds that it waits for an answer, or for a connection."""
        self._munge, self._most_mb = munge, bounds.most_mb

    def call(self, method: str, path: str, *, body: Any = None, **query: Any) -> Any:
        """Send one request to the route `path` under /v1 and return the answer's JSON.

        Raises:
            DaemonError: No daemon answers, what answers is none or sends too much, or the daemon refuses:
                then the message is the daemon's.
            MungeError: munge makes no credential.
        """
        return self._call(method, path, body, query, Allowance(self._most_mb))[0]

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

    def _page(self, path: str, query: dict[str, Any], allowance: Allowance) -> tuple[Any, Headers]:
        allowance.check_time()
        return self._call("GET", path, None, query, allowance)

    def _call(
        self, method: str, path: str, body: Any, query: Mapping[str, Any], allowance: Allowance
    ) -> tuple[Any, Headers]:
        """Send a request; where the daemon takes none at the moment, again and again in time."""
        target = target_of(path, query)
        try:
            data = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            quoted = ascii(error.object[max(0, error.start - 40) : error.end])
            raise DaemonError(NO_UTF8.say(quoted=quoted)) from error
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                answer, found = self._send(method, target, data, deadline, allowance)
            except _BusyError as error:
                refused = TAKES_NONE.say(where=self.where, why=error)
            else:
                if answer.status not in RETRIED or "Retry-After" not in answer.headers:
                    break
                refused = _said(found) or TAKES_NONE.say(where=self.where, why=f"status {answer.status}")
            wait_s = RETRY_S * random.uniform(1.0, 1.5)  # noqa: S311  clients do not all come back at once
            if time.monotonic() + wait_s > deadline:
                raise DaemonError(refused)
            time.sleep(wait_s)
        if answer.status >= 400:
            raise DaemonError(_said(found) or self.no_daemons(f"status {answer.status} to {method} {path}"))
        return found, answer.headers

    async def credential(self, method: str, target: str, data: bytes) -> dict[str, str]:
        """The header that says who sends a request, where the daemon does not know it by its socket.

        Raises:
            MungeError: munge makes none.
        """
        if self._munge is None:
            return {}
        return {"Authorization": f"{SCHEME} {await self._munge.encode(digest(method, target, data))}"}

    def _send(
        self, method: str, target: str, data: bytes, deadline: float, allowance: Allowance
    ) -> tuple[http.client.HTTPResponse, Any]:
        """Send one request; return the answer and its JSON.

        Raises:
            _BusyError: Nothing was done, and the request can be sent again.
            DaemonError: There is no answer, or none of a daemon.
        """
        known = {} if self._munge is None else asyncio.run(self.credential(method, target, data))
        connection, is_sent = http.client.HTTPConnection(self.host), True
        try:
            connection.sock = self._connected(deadline)
            try:
                connection.request(method, target, data or None, HEADERS | known)
            except (BrokenPipeError, ConnectionResetError):  # it may have answered before it closed
                is_sent = False
            answer = connection.getresponse()
            return answer, allowance.read(answer)
        except TimeoutError as error:
            late = f"has not answered within {self.patience_s:g} s"
            raise DaemonError(self.no_answer(method, late)) from error
        except OSError as error:
            if method == "GET" or not is_sent:
                raise _BusyError("it closes the connection") from error
            closed = "closed the connection and gave no answer"
            raise DaemonError(self.no_answer(method, closed)) from error
        except (http.client.HTTPException, OddAnswerError, ValueError, RecursionError) as error:
            raise self._odd(error) from error
        finally:
            connection.close()

    def _connected(self, deadline: float) -> BoundedSocket:
        try:
            return BoundedSocket.to(self.where, deadline)
        except BlockingIOError as error:
            raise _BusyError("too many clients wait for it") from error
        except TimeoutError:
            raise
        except OSError as error:
            raise DaemonError(self.unanswered(error)) from error

    @property
    def host(self) -> str:
        """The host that requests name as the daemon's machine."""
        return "bftrainer" if isinstance(self.where, Path) else self.where

    def _odd(self, error: Exception) -> DaemonError:
        return DaemonError(self.no_daemons((str(error) or type(error).__name__)[:300]))

    def no_daemons(self, said: str) -> str:
        """Return the message for an answer that is not a daemon's."""
        return NO_DAEMONS_ANSWER.say(where=f"at {self.where}", said=said)

    def no_answer(self, method: str, what: str) -> str:
        """Return the message for a daemon that took a connection, and gave no whole answer."""
        found = NO_ANSWER if method == "GET" else ORDER_UNANSWERED
        return found.say(where=self.where, what=what)

    def unanswered(self, error: OSError) -> str:
        """Return the message where no daemon takes a connection."""
        if isinstance(error, PermissionError):
            return NOT_FOR_YOU.say(where=self.where)
        if isinstance(self.where, Path):
            return NO_DAEMON.say(where=self.where)
        return NO_SERVER.say(where=self.where)


def target_of(path: str, query: Mapping[str, Any]) -> str:
    """A route `path` under /v1 and a query, as they are sent; what is None is left out."""
    asked = {key: str(value) for key, value in query.items() if value is not None}
    there = "/".join(quote(part, safe="") for part in path.split("/"))
    return f"/v1/{there}" + (f"?{urlencode(asked)}" if asked else "")


class _BusyError(Exception):
    """The daemon did not take the request."""


def _said(found: Any) -> str:
    """The daemon's own words in an answer that is an error; empty if it has none."""
    said = found.get("error") if isinstance(found, dict) else None
    return said[:MOST_SAID] if isinstance(said, str) else ""
