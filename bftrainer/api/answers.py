"""Sends large answers in pieces, so that a client that reads slowly holds a bounded amount of memory.

An answer is in memory until its client has taken it. All answers under way have a bound, those of one user a
quarter of it, and each must be taken in a bounded time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from aiohttp import web

from bftrainer.api.transport.admission import BusyError

PIECE = 64 * 1024
"""Smaller answers are sent at once and not counted: the number of connections bounds them."""
SHARE = 4
"""One user's answers may have the fourth part of what all may."""
ANSWER_BYTES = 8_000_000
"""Size of one answer; the next one begins where it ends."""
WAITING_BYTES = 64_000_000
"""Size of all answers above `PIECE` that clients have not taken yet."""
TAKEN_S = 60.0
"""Time for a client to take an answer above `PIECE`, in seconds: 8 MB over 1 Mbit/s."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of an answer, ready to be sent."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True, eq=False)
class _UnderWay:
    user: str
    size: int
    cut: Callable[[], None]


class Answers:
    """The answers that are under way: `most` bytes together. Each has `seconds` to be taken by its client.

    `bounded` is called with the bound that was hit, and the user.
    """

    def __init__(
        self, bounded: Callable[[str, str], None], most: int = WAITING_BYTES, seconds: float = TAKEN_S
    ) -> None:
        self._most, self._seconds, self._bounded = most, seconds, bounded
        self._bytes: Counter[str] = Counter()
        self._under_way: dict[_UnderWay, None] = {}

    async def send(self, request: web.Request, user: str, answer: Answer) -> web.StreamResponse:
        """Send an answer to a user. The connection of a client that does not take it in time is cut.

        Raises:
            BusyError: too much is under way already, to this user or to all.
        """
        headers = {**answer.headers, "Content-Type": answer.content_type}
        if len(answer.body) <= PIECE or request.method == "HEAD":  # of which aiohttp sends no body
            return web.Response(body=answer.body, headers=headers)
        with self.counted(user, len(answer.body), request):
            response = web.StreamResponse(headers=headers)
            response.content_length = len(answer.body)
            try:
                async with asyncio.timeout(self._seconds):
                    await response.prepare(request)
                    for piece in pieces(answer.body):
                        await response.write(piece)
                    await response.write_eof()
            except TimeoutError:
                self._bounded("answer_timeout_s", user)
                cut(request)
            return response

    @contextmanager
    def counted(self, user: str, size: int, request: web.Request) -> Iterator[None]:
        """Count an answer of `size` bytes while it is under way. If all answers exceed the bound, the first
        answer of the user with the most bytes under way is cut off.

        Raises:
            BusyError: too much is under way already, to this user or to all.
        """
        # one answer is always possible: its own size has a bound
        if self._bytes[user] and self._bytes[user] + size > self._most // SHARE:
            self._bounded("max_answers_waiting_mb", user)
            raise BusyError("read the large answers that you have asked for first", 429)
        while self._bytes and self._bytes.total() + size > self._most:
            self._bounded("max_answers_waiting_mb", user)
            other, most = self._bytes.most_common(1)[0]
            if most <= self._bytes[user] + size:
                raise BusyError("large answers are under way to others; try again in a minute", 503)
            first = next(one for one in self._under_way if one.user == other)
            self._over(first)
            first.cut()
        own = _UnderWay(user, size, partial(cut, request))
        self._under_way[own] = None
        self._bytes[user] += size
        try:
            yield
        finally:
            self._over(own)

    def _over(self, one: _UnderWay) -> None:
        """Count an answer no more."""
        if one in self._under_way:
            del self._under_way[one]
            self._bytes[one.user] -= one.size
            self._bytes = +self._bytes


def cut(request: web.Request) -> None:
    """End a request's connection at once."""
    if request.transport is not None:
        request.transport.abort()


def pieces(body: bytes) -> Iterator[memoryview]:
    """Return a body in pieces of `PIECE` bytes."""
    view = memoryview(body)
    return (view[begin : begin + PIECE] for begin in range(0, len(view), PIECE))
