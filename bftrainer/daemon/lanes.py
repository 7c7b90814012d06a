"""Threads for what may take long, so that the event loop does not wait: the store's answers, and large ones.

Each lane is one thread. So many requests may wait for it, a quarter of them of one user; the next is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bftrainer.api.admission import BusyError
from bftrainer.api.errors import LateError
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry

T = TypeVar("T")
SHARE = 4
"""One user gets at most the fourth part of a bound that all share."""


class Lane:
    """One thread, and a bounded number of callers that wait for it. `work` says in messages what it does."""

    def __init__(self, name: str, work: str, settings: LiveSettings, telemetry: Telemetry) -> None:
        self._name, self._work, self._settings, self._telemetry = name, work, settings, telemetry
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: Counter[str] = Counter()

    async def run(self, user: str, work: Callable[[], T]) -> T:
        """Return what `work` returns, for a user; it is called in the lane's thread, in order of arrival.

        Raises:
            BusyError: as many requests wait as may, of the user or of all users.
            LateError: there is no answer after `read_timeout_s`.
        """
        self._admit(user)
        given_up = began = False

        def unless_given_up() -> T:
            nonlocal began
            began = True
            if given_up:
                raise LateError("nobody waits for this any more")
            return work()

        future = asyncio.wrap_future(self._thread.submit(unless_given_up))
        future.add_done_callback(lambda done: self._done(user, done))
        limit_s = self._settings.current.read_timeout_s
        try:
            done, _ = await asyncio.wait({future}, timeout=limit_s)
            if done:
                return future.result()
        finally:
            given_up = True  # also where the client has gone
        self._telemetry.bounded("read_timeout_s", user)
        if not began:  # each request before it has its own limit
            raise LateError(f"others' requests keep {self._work} busy for {limit_s:g} s; try again later")
        self._telemetry.happened("reads", f"{self._work} takes more than {limit_s:g} s")
        raise LateError(f"{self._work} takes more than {limit_s:g} s at the moment; try again later")

    def close(self) -> None:
        """Let go of the thread; what waits for it is given up."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _admit(self, user: str) -> None:
        most = self._settings.current.max_reads_waiting
        own = max(1, most // SHARE)
        if self._waiting[user] >= own:
            self._telemetry.bounded("max_reads_waiting", user)
            raise BusyError(
                f"{own} of your requests wait for {self._work}, the most for one user with max_reads_waiting "
                f"{most}; ask one after the other",
                429,
            )
        if self._waiting.total() >= most:
            self._telemetry.bounded("max_reads_waiting", user)
            self._telemetry.happened("reads", f"{most} requests wait for {self._work}: more are refused")
            raise BusyError(
                f"{most} requests wait for {self._work}, the most here (max_reads_waiting); try again in a "
                "few seconds",
                503,
            )
        self._waiting[user] += 1

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

    def __init__(self, settings: LiveSettings, telemetry: Telemetry) -> None:
        self.store = Lane("read-trainers", "reading trainers from the store", settings, telemetry)
        self.rows = Lane("read-rows", "reading events from the store", settings, telemetry)
        self.memory = Lane("answers", "making answers", settings, telemetry)

    def close(self) -> None:
        """Let go of all threads."""
        for lane in (self.store, self.rows, self.memory):
            lane.close()
