"""Threads for slow work, so that the event loop does not wait: the store's answers, and large ones.

Each lane is one thread, in which users take turns. A bounded number of requests may wait for it, a quarter of
them from one user; the next is refused, unless it is its user's only one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from bftrainer.api.errors import LateError
from bftrainer.api.transport.admission import BusyError
from bftrainer.messages.commands.daemon import LATE, MOST_OF_A_USER, MOST_OF_ALL
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.threads import FairThread, check

T = TypeVar("T")
WORK_S = 5.0
"""Processor time of one piece of a user's work, in seconds: others wait for its thread meanwhile."""
READ_S = 10.0
"""Time for an answer of the store, in seconds: as long as clients of HTTP commonly wait."""
READS_WAITING = 64
"""Requests that wait for a lane: each holds a connection and some kB."""
SHARE = 4
"""One user gets at most the fourth part of a bound that all share."""


def fair_thread(name: str, telemetry: Telemetry) -> FairThread:
    """A thread for users' work, each piece of which may take `WORK_S`."""
    return FairThread(name, WORK_S, lambda user: telemetry.bounded("max_work_s", user))


class Lane:
    """One thread, and a bounded number of callers that wait for it. `work` says in messages what it does."""

    def __init__(self, name: str, work: str, telemetry: Telemetry) -> None:
        self._work, self._telemetry = work, telemetry
        self._thread = fair_thread(name, telemetry)
        self._waiting: Counter[str] = Counter()

    async def run(self, user: str, work: Callable[[], T]) -> T:
        """Return what `work` returns, for a user; it is called in the lane's thread when the user's turn has
        come. It ends at its next `threads.check` once nobody waits for it.

        Raises:
            BusyError: as many requests wait as may, of the user or of all users.
            LateError: there is no answer after `READ_S`.
        """
        self.check_place(user)
        self._waiting[user] += 1
        began = False

        def unless_given_up() -> T:
            nonlocal began
            began = True
            check()
            return work()

        piece = self._thread.submit(user, unless_given_up)
        future = asyncio.wrap_future(piece)
        future.add_done_callback(lambda done: self._done(user, done))
        try:
            done, _ = await asyncio.wait({future}, timeout=READ_S)
            if done:
                return future.result()
        finally:
            piece.given_up = True  # also where the client has gone
        self._telemetry.bounded("read_timeout_s", user)
        if not began:  # each request before it has its own limit
            raise LateError(LATE.say(what=f"others' requests keep {self._work} busy for", limit=READ_S))
        self._telemetry.happened("reads", f"{self._work} takes more than {READ_S:g} s")
        raise LateError(LATE.say(what=f"{self._work} takes more than", limit=READ_S))

    def close(self) -> None:
        """Let go of the thread; what waits for it is given up."""
        self._thread.close()

    def check_place(self, user: str) -> None:
        """Refuse a user for whom `run` has no place now: before anything is done for the request.

        Raises:
            BusyError: as many requests wait as may, of the user or of all users.
        """
        own = READS_WAITING // SHARE
        if self._waiting[user] >= own:
            self._telemetry.bounded("max_reads_waiting", user)
            what = f"of your requests wait for {self._work}"
            raise BusyError(MOST_OF_A_USER.say(count=own, what=what, setting=""), 429)
        if self._waiting[user] and self._waiting.total() >= READS_WAITING:
            self._telemetry.bounded("max_reads_waiting", user)
            what = f"requests wait for {self._work}"
            self._telemetry.happened("reads", f"{READS_WAITING} {what}: more are refused")
            raise BusyError(MOST_OF_ALL.say(count=READS_WAITING, what=what, setting=""), 503)

    def _done(self, user: str, future: asyncio.Future[T]) -> None:
        if not future.cancelled():
            future.exception()  # nobody may ask for it any more
        self._waiting[user] -= 1
        self._waiting = +self._waiting  # without those that are 0: users come and go


class Lanes:
    """The threads of the daemon's answers: what one reads for long keeps no other waiting.

    `store` reads trainers, `rows` reads events, pauses and reports, and `memory` makes large answers of what
    the daemon has in memory: it goes on while the store stands still.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self.store = Lane("read-trainers", "reading trainers from the store", telemetry)
        self.rows = Lane("read-rows", "reading events from the store", telemetry)
        self.memory = Lane("answers", "making answers", telemetry)

    def close(self) -> None:
        """Let go of all threads."""
        for lane in (self.store, self.rows, self.memory):
            lane.close()
