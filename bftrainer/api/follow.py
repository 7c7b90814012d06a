"""Follows what the daemon sends as it comes: its feed, of which the state is kept, and answers for others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from bftrainer.api.client import HEADERS, Client, DaemonError, target_of
from bftrainer.messages.commands.reaching import NO_DAEMONS_ANSWER

MOST_BYTES = 100_000_000
"""One event has no more: that of a whole state of the largest machines has a tenth of it."""
SILENT_S = 60.0
"""Seconds of silence after which a stream has lost its daemon, which sends beats."""
KEYS = {"trainers": "id", "nodes": "node", "studies": "id"}
"""The parts of the feed that consist of rows, and what names a row."""


@asynccontextmanager
async def streamed(
    client: Client, method: str, path: str, query: Mapping[str, str], data: bytes = b""
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send one request to a path under /v1; its answer is read as it comes, whatever its status is.

    Raises:
        DaemonError: No daemon answers, or it falls silent.
        MungeError: munge makes no credential.
    """
    target, where = target_of(path, query), client.where
    connector = aiohttp.UnixConnector(path=str(where)) if isinstance(where, Path) else None
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=client.patience_s, sock_read=SILENT_S)
    session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
    try:
        async with (
            session,
            session.request(
                method,
                URL(f"http://{client.host}{target}", encoded=True),
                data=data,
                headers=HEADERS | await client.credential(method, target, data),
                allow_redirects=False,
            ) as answer,
        ):
            yield answer
    except TimeoutError as error:
        raise DaemonError(client.no_answer(method, "has fallen silent")) from error
    except aiohttp.ClientConnectorError as error:
        raise DaemonError(client.unanswered(error.os_error)) from error
    except FileNotFoundError as error:
        raise DaemonError(client.unanswered(error)) from error
    except aiohttp.ClientError as error:
        raise DaemonError(client.no_answer(method, "has closed the connection")) from error


Ask = Callable[..., AbstractAsyncContextManager[aiohttp.ClientResponse]]
"""Sends a daemon a request by method, path, query and data, as `streamed` does with a client."""


@dataclass(slots=True)
class FeedState:
    """The feed's data so far: rows by part and key, the status, and the number of decisions."""

    seq: int = -1
    rows: dict[str, dict[Any, dict[str, Any]]] = field(default_factory=dict)
    status: Mapping[str, Any] | None = None
    decisions: int = 0

    def take(self, name: str, told: Mapping[str, Any]) -> None:
        """Take in a `state` or a `change`."""
        if name == "state":
            self.rows = {}
        self.seq = told["seq"]
        self.status = told.get("status", self.status)
        self.decisions = told.get("decisions", self.decisions)
        for part, key in KEYS.items():
            rows = self.rows.setdefault(part, {})
            rows |= {row[key]: row for row in told.get(part, ())}
            for gone in told.get("gone", {}).get(part, ()):
                rows.pop(gone, None)


@dataclass(slots=True)
class EventParser:
    """Server-sent events from the bytes of a stream, however they are cut."""

    _rest: bytearray = field(default_factory=bytearray)

    def take(self, data: bytes) -> Iterator[tuple[str, Any]]:
        """Yield the events that are complete now, each with its name and the JSON of its data.

        Raises:
            DaemonError: an event has more than `MOST_BYTES`, or is none.
        """
        begin = max(0, len(self._rest) - 1)
        self._rest += data
        while (end := self._rest.find(b"\n\n", begin)) >= 0:
            block, begin = bytes(self._rest[:end]), 0
            del self._rest[: end + 2]
            fields = dict(line.partition(b": ")[::2] for line in block.split(b"\n"))
            if b"event" in fields:
                try:
                    yield fields[b"event"].decode("ascii", "replace"), json.loads(fields.get(b"data", b""))
                except (ValueError, RecursionError) as error:
                    raise DaemonError(NO_DAEMONS_ANSWER.say(where="there", said=error)) from error
        if len(self._rest) > MOST_BYTES:
            said = f"an event of more than {MOST_BYTES:,} bytes"
            raise DaemonError(NO_DAEMONS_ANSWER.say(where="there", said=said))


async def _follow(client: Client, parts: str) -> AsyncIterator[FeedState]:
    """Yield the state again and again, after each event, for ever. Raises as `followed`."""
    while True:
        state, parser, ended = FeedState(), EventParser(), False
        async with streamed(client, "GET", "feed", {"parts": parts}) as answer:
            if answer.status != 200:
                said = _said(await answer.content.read(20_000))
                raise DaemonError(said or client.no_daemons(f"status {answer.status} to GET feed"))
            async for data in answer.content.iter_any():
                for name, told in parser.take(data):
                    if ended := name == "again":
                        break
                    try:
                        state.take(name, told)
                    except (LookupError, TypeError, AttributeError) as error:
                        raise DaemonError(client.no_daemons(repr(error))) from error
                    yield state
        if not ended:
            raise DaemonError(client.no_answer("GET", "has ended the stream: it stops, or was restarted"))


def _said(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        return ""


class _Latest:
    """The latest state, and whether it has changed since it was asked for. Belongs to one event loop."""

    def __init__(self, client: Client, parts: str) -> None:
        self._state, self._changed = FeedState(), asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._keep(client, parts))

    async def next(self, pause_s: float) -> FeedState:
        """Return the state once it has changed, and `pause_s` later: so changes do not pile up."""
        waiting = asyncio.ensure_future(self._changed.wait())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self._task.done():
            await asyncio.wait({self._task}, timeout=pause_s)
        if self._task.done():
            self._task.result()
        self._changed.clear()
        return self._state

    async def close(self) -> None:
        """End the stream."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _keep(self, client: Client, parts: str) -> None:
        async for state in _follow(client, parts):
            self._state = state
            self._changed.set()


def followed(client: Client, *parts: str, every_s: float = 0.0) -> Iterator[FeedState]:
    """Yield the state of these parts of the feed at once, then whenever it has changed, for ever: not more
    often than every `every_s`.

    Raises:
        DaemonError: no daemon answers, or it refuses or ends the stream.
        MungeError: munge makes no credential.
    """

    async def begun() -> _Latest:
        return _Latest(client, ",".join(parts))

    with asyncio.Runner() as runner:
        latest, pause_s = runner.run(begun()), 0.0
        try:
            while True:
                yield runner.run(latest.next(pause_s))
                pause_s = every_s
        finally:
            runner.run(latest.close())
