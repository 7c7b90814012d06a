"""The feed of changes as server-sent events: each reader's queue is bounded, and none delays another.

A stream begins with one `state`; each `change` after it tells what differs, with a higher sequence number. A
reader that takes too little gets `again`: it has to reconnect. So does each one now and then: rights change.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from aiohttp import web

from bftrainer.api.answers import PIECE, TAKEN_S, Answers, cut, pieces
from bftrainer.api.callers import Caller
from bftrainer.api.fields import odd_request
from bftrainer.api.transport.admission import BusyError

PARTS = ("status", "decisions", "nodes", "studies", "trainers")
"""The parts of the feed that a reader may ask for, in the order in which they are told."""
QUEUE_BYTES = 1_000_000
"""Bytes that wait for one reader, at most; one that leaves more unread has to begin again."""
BEAT_S = 15.0
"""Seconds without a change after which a line without meaning shows that both sides are there."""
LIFE_S = 600.0
"""Each stream ends after this time (s), and the rights of its reader are checked again."""
SLOW = "you read too slowly: ask again for the whole state"
OVER = "ask again for the whole state, as every reader does now and then"

SHARED = "all streams are open, and another user has fewer than you: ask again"


class HasState(Enum):
    """The parts of the state that a reader has been given."""

    NOTHING, PART, ALL = "nothing", "a part", "all"


@dataclass(slots=True, eq=False)
class FeedReader:
    """One reader, and the events that wait for it: `QUEUE_BYTES` at most beside its first one, the state,
    which may come in parts."""

    caller: Caller
    parts: tuple[str, ...]
    given: HasState = HasState.NOTHING
    inside: bool = False
    """True if what was taken from here last is the beginning of the state."""
    ended: str = ""
    """Why it has to begin again; empty: it goes on."""
    _waiting: deque[bytes] = field(default_factory=deque)
    _parts: int = 0
    """Parts of the state that wait; they come first, and do not count in `_size`."""
    _size: int = 0
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def user(self) -> str | None:
        """Return whose rows it gets; None: an admin, who gets all."""
        return None if self.caller.admin else self.caller.user

    @property
    def told_as(self) -> str:
        """A word for all callers that get the same."""
        return f"{self.caller.user} (admin)" if self.caller.admin else self.caller.user

    def put(self, event: bytes, *, more: bool = False) -> None:
        """Have an event wait for the reader; beyond the bound everything is dropped, and it begins again.
        `more`: this is the beginning of the state, whose rest is put next."""
        if self.ended:
            return
        follows = self.given is HasState.ALL
        if follows and self._size + len(event) > QUEUE_BYTES:
            self.end(SLOW)
            return
        self._waiting.append(event)
        self._size += len(event) if follows else 0
        self._parts += not follows
        self.given = HasState.PART if more else HasState.ALL
        self._wake.set()

    def end(self, why: str) -> None:
        """Have the reader begin again: what waits for it is dropped."""
        self.ended = self.ended or why
        self._waiting.clear()
        self._wake.set()

    async def next(self) -> bytes | None:
        """Return the next event, or a beat after `BEAT_S` without one; None: the reader begins again. The
        state may come in two parts."""
        while not self._waiting:
            if self.ended:
                return None
            self._wake.clear()
            try:
                async with asyncio.timeout(BEAT_S if self.given is HasState.ALL else None):
                    await self._wake.wait()
            except TimeoutError:
                return b": beat\n\n"
        event = self._waiting.popleft()
        if self._parts:
            self._parts -= 1
            self.inside = bool(self._parts) or self.given is HasState.PART
        else:
            self._size -= len(event)
        return event


class Feed(Protocol):
    """The daemon's feed."""

    def join(self, caller: Caller, parts: tuple[str, ...]) -> FeedReader:
        """Return a reader, which is soon given a `state` and then each `change`.

        Raises:
            BusyError: the user, or all users together, have as many as may be.
        """
        ...

    def leave(self, reader: FeedReader) -> None:
        """Forget a reader."""
        ...

    def slow(self, reader: FeedReader) -> None:
        """Count that a reader was told to begin again, or was cut off, as it takes too little."""
        ...


def event(name: str, data: bytes) -> bytes:
    """Return a server-sent event; `data` is JSON, which has no line ends."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def parts_of(request: web.Request) -> tuple[str, ...]:
    """Return the parts that the query asks for, all by default.

    Raises:
        BftrainerError: one of them does not exist.
    """
    asked = request.query.get("parts", ",".join(PARTS)).split(",", len(PARTS) + 1)
    for part in asked:
        if part not in PARTS:
            raise odd_request(f"parts={part[:20]!a}: choose of {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in asked)


async def send_feed(request: web.Request, caller: Caller, feed: Feed, answers: Answers) -> web.StreamResponse:
    """Send the feed to a client until it goes, or has to begin again; the connection of one that takes
    nothing for `TAKEN_S` is cut.

    Raises:
        BusyError: the client's user, or all users, have too many streams or large answers under way.
    """
    reader = feed.join(caller, parts_of(request))
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    response.force_close()
    try:
        until = asyncio.get_running_loop().time() + LIFE_S
        state = True
        while (found := await reader.next()) is not None:
            large = state and len(found) > PIECE
            with answers.counted(caller.user, len(found), request) if large else nullcontext():
                await _sent(request, response, found)
            state = reader.inside
            if asyncio.get_running_loop().time() > until:
                reader.end(OVER)
        if reader.ended == SLOW:
            feed.slow(reader)
        await _ended(request, response, reader)
    except (TimeoutError, BusyError) as error:
        if isinstance(error, BusyError) and not response.prepared:
            raise
        feed.slow(reader)
        cut(request)
    finally:
        feed.leave(reader)
    return response


async def _ended(request: web.Request, response: web.StreamResponse, reader: FeedReader) -> None:
    """Have a client begin again; one that has a part of the state alone finds that out by itself."""
    if reader.inside:
        cut(request)
    else:
        await _sent(request, response, event("again", b'{"reason": "%s"}' % reader.ended.encode()))


async def _sent(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(TAKEN_S):
        if not response.prepared:
            await response.prepare(request)
        for piece in pieces(data):
            await response.write(piece)
