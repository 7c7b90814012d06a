"""Polls the scheduler: often where something happens, rarely where nothing does, never too much."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from bftrainer.errors import SchedulerError
from bftrainer.model.backoff import backoff_s
from bftrainer.model.events import PollFailed
from bftrainer.model.machine import Snapshot
from bftrainer.model.text import counted
from bftrainer.ports import Clock, Emit, Scheduler
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry

MAX_POLL_S = 30.0
POLL_SHARE = 0.2
"""Polls keep the scheduler busy for at most this share of the time, however slow it is and however many ask
for one. Our own reading of what it printed is no load for it."""


class Watch:
    """Polls the scheduler, one poll at a time.

    `take_in` is given every snapshot, and says whether it changed anything. `quiet` says whether polls may
    become rare: we hold nothing, so that no main job waits for us.
    """

    def __init__(
        self,
        *,
        settings: LiveSettings,
        clock: Clock,
        scheduler: Scheduler,
        emit: Emit,
        telemetry: Telemetry,
        take_in: Callable[[Snapshot], Awaitable[bool]],
        quiet: Callable[[], bool],
    ) -> None:
        self._settings, self._clock, self._scheduler = settings, clock, scheduler
        self._emit, self._telemetry, self._take_in, self._quiet = emit, telemetry, take_in, quiet
        self._failed = 0  # polls in a row
        self._interval_s: float = settings.current.poll_s
        self._polling = asyncio.Lock()
        self._next: asyncio.Task[bool] | None = None  # the poll that has not begun yet
        self._rests_until = 0.0  # on the monotonic clock: no poll begins before
        self._now = asyncio.Event()
        self._due: asyncio.TimerHandle | None = None  # while polls are made: tells that none was answered
        self._answered_at = 0.0  # on the monotonic clock

    def wake(self) -> None:
        """Poll now instead of at the end of the present interval."""
        self._now.set()

    async def run(self) -> None:
        """Poll for ever. A failed poll is an event, and never an empty machine."""
        self._expect_answer(0.0)
        try:
            while True:
                self._now.clear()
                try:
                    wait_s = self._after(changed=await self.fresh_poll())
                except SchedulerError as error:
                    wait_s = self._after_failure(error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._now.wait(), wait_s)
        finally:
            if self._due is not None:
                self._due.cancel()
            self._due = None

    def _expect_answer(self, took_s: float) -> None:
        """Have the status say so if no further poll is answered in time: a poll that hangs has not failed
        yet. The next one begins when the interval is over and the scheduler has rested; it may take as long
        as `failed_polls` polls, each like the last one that `took_s`."""
        settings, now = self._settings.current, time.monotonic()
        if self._due is not None:
            self._due.cancel()
        waits_s = max(settings.poll_s, settings.poll_max_s, self._rests_until - now)
        self._answered_at = now
        self._due = asyncio.get_running_loop().call_later(
            waits_s + settings.failed_polls * max(settings.poll_s, took_s), self._tell_late
        )

    def _tell_late(self) -> None:
        late_s = time.monotonic() - self._answered_at
        self._telemetry.condition("scheduler", f"no poll was answered for {late_s:.0f} s")

    def _after(self, *, changed: bool) -> float:
        """Return how long to wait after a poll that was answered."""
        settings = self._settings.current
        calm = not changed and self._quiet()
        self._interval_s = min(1.5 * self._interval_s, settings.poll_max_s) if calm else settings.poll_s
        return max(self._interval_s, settings.poll_s)

    def _after_failure(self, error: SchedulerError) -> float:
        """Return how long to wait after a poll that failed: twice as long after every further one."""
        settings = self._settings.current
        self._failed += 1
        if self._failed >= settings.failed_polls or self._telemetry.troubles.has("scheduler"):
            self._telemetry.condition("scheduler", f"{counted(self._failed, 'poll')} failed: {error}")
        self._emit(PollFailed(time=self._clock.now(), reason=str(error)))
        return backoff_s(settings.poll_s, self._failed, MAX_POLL_S)

    async def fresh_poll(self) -> bool:
        """Wait for a poll that begins from now on; all that ask before it begins share it. Returns whether
        anything has changed.

        Raises:
            SchedulerError: the scheduler does not answer.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._in_turn())
        return await asyncio.shield(self._next)

    async def _in_turn(self) -> bool:
        async with self._polling:
            await asyncio.sleep(self._rests_until - time.monotonic())
            self._next = None
            return await self.poll()

    def note(self, snapshot: Snapshot) -> None:
        """Note what a poll has left out, and whether any node could be ours at all."""
        self._telemetry.condition("queue", snapshot.unseen)
        self._telemetry.condition("nodes", shut(snapshot))

    async def poll(self) -> bool:
        """Poll once, at once. Returns whether anything has changed.

        Raises:
            SchedulerError: the scheduler does not answer.
        """
        began = time.monotonic()
        with self._telemetry.polling():
            snapshot = await self._scheduler.poll()
        self.note(snapshot)
        self._failed = 0
        self._telemetry.condition("scheduler", "")
        now = time.monotonic()
        asked_s = now - began if snapshot.asked_s is None else snapshot.asked_s
        self._rests_until = now + min(MAX_POLL_S, asked_s * (1 / POLL_SHARE - 1))
        if self._due is not None:
            self._expect_answer(now - began)
        return await self._take_in(snapshot)


def shut(snapshot: Snapshot) -> str:
    """Return why no node could be ours even if main jobs used none, and what to set; "" if one could."""
    reasons = Counter(node.shut for node in snapshot.nodes)
    if not reasons or "" in reasons:
        return ""
    (first, count), *others = reasons.most_common()
    more = "".join(f"; of {many} more: {why}" for why, many in others[:1])
    return f"no node can be held: {first}" + (
        f" ({count} of {reasons.total()} nodes{more})" if others else ""
    )
