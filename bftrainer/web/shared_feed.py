"""One stream of the daemon's feed for all pages that follow it: they get the same.

A page that comes later gets what the stream has told from its begin on: a state, then changes. Each page
takes it at its own pace, and all share one copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from bftrainer.api.follow import Ask
from bftrainer.errors import BftrainerError

STREAMS = 12
"""Streams open at once, at most: the daemon has 16 for one user."""
PIECE = 64 * 1024
SPARE = 256 * 1024
"""Changes of fewer bytes never make a page begin with a stream of its own."""
MOST = 32 * 1024 * 1024
"""Bytes of changes that are kept; then the stream ends, and its pages begin again."""
END_OF_EVENT = b"\n\n"


@dataclass(slots=True, eq=False)
class FeedLog:
    """The data of one stream so far, in pieces as they came. `state`: bytes of the first event, the state; 0
    until it is whole. `status` is that of the daemon's answer, `failed` why there is none."""

    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    state: int = 0
    status: int = 0
    failed: BftrainerError | None = None
    ended: bool = False
    readers: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_long(self) -> bool:
        """Return whether a new page had better begin with a state of its own."""
        return bool(self.state) and self.size - self.state > max(SPARE, self.state // 2)

    def add(self, piece: bytes) -> None:
        """Take in what the stream tells next."""
        if not self.state:
            before = self.pieces[-1][-1:] if self.pieces else b""
            found = (before + piece).find(END_OF_EVENT)
            if found >= 0:
                self.state = self.size - len(before) + found + len(END_OF_EVENT)
        self.pieces.append(piece)
        self.size += len(piece)
        self.tell()

    def tell(self) -> None:
        """Wake those who wait for more."""
        self.news.set()
        self.news = asyncio.Event()


class SharedFeed:
    """The daemon's feed, for any number of pages."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._logs: dict[FeedLog, asyncio.Task[None]] = {}

    def join(self) -> FeedLog:
        """The stream that a new page is to follow: one that has told little beside the state, if any."""
        newest = next((log for log in reversed(self._logs) if not log.ended), None)
        if newest is None or (newest.is_long and len(self._logs) < STREAMS):
            newest = FeedLog()
            self._logs[newest] = asyncio.create_task(self._fill(newest))
        newest.readers += 1
        return newest

    def leave(self, log: FeedLog) -> None:
        """A page does not follow any more; the last one ends the stream."""
        log.readers -= 1
        if not log.readers and (task := self._logs.pop(log, None)) is not None:
            task.cancel()

    async def _fill(self, log: FeedLog) -> None:
        try:
            async with self._ask("GET", "feed", {}) as answer:
                log.status = answer.status
                async for piece in answer.content.iter_chunked(PIECE):
                    log.add(piece)
                    if log.state and log.size - log.state > MOST:
                        break
        except BftrainerError as error:
            log.failed = error
        finally:
            log.ended = True
            self._logs.pop(log, None)
            log.tell()


async def told(log: FeedLog) -> AsyncIterator[bytes]:
    """Yield all that a stream tells, from its begin on, until it ends.

    Raises:
        BftrainerError: the daemon did not answer.
    """
    at = 0
    while True:
        if at < len(log.pieces):
            at += 1
            yield log.pieces[at - 1]
        elif log.ended:
            if log.failed is not None and not at:
                raise log.failed
            return
        else:
            await log.news.wait()
