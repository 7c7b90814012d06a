"""When the scheduler is polled: often where something happens, rarely where nothing does, never too much."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from bftrainer.errors import SchedulerError
from bftrainer.model.backoff import backoff_s
from bftrainer.model.events import PollFailed
from bftrainer.model.machine import Snapshot
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

    def wake(self) -> None:
        """Poll now instead of at the end of the present interval."""
        self._now.set()

    async def run(self) -> None:
        """Poll for ever. A failed poll is an event, and never an empty machine."""
        while True:
            self._now.clear()
            try:
                wait_s = self._after(changed=await self.fresh_poll())
            except SchedulerError as error:
                wait_s = self._after_failure(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._now.wait(), wait_s)

    def _after(self, *, changed: bool) -> float:
        """How long to wait after a poll that was answered."""
        own = self._settings.current
        self._failed = 0
        self._telemetry.condition("scheduler", "")
        calm = not changed and self._quiet()
        self._interval_s = min(1.5 * self._interval_s, own.poll_max_s) if calm else own.poll_s
        return max(self._interval_s, own.poll_s)

    def _after_failure(self, error: SchedulerError) -> float:
        """How long to wait after a poll that failed: twice as long after every further one."""
        own = self._settings.current
        self._failed += 1
        if self._failed >= own.failed_polls:
            self._telemetry.condition("scheduler", f"{self._failed} polls failed: {error}")
        self._emit(PollFailed(time=self._clock.now(), reason=str(error)))
        return backoff_s(own.poll_s, self._failed, MAX_POLL_S)

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

    async def poll(self) -> bool:
        """Poll once, at once. Returns whether anything has changed.

        Raises:
            SchedulerError: the scheduler does not answer.
        """
        began = time.monotonic()
        with self._telemetry.polling():
            snapshot = await self._scheduler.poll()
        self._telemetry.condition("queue", snapshot.unseen)
        now = time.monotonic()
        asked_s = now - began if snapshot.asked_s is None else snapshot.asked_s
        self._rests_until = now + min(MAX_POLL_S, asked_s * (1 / POLL_SHARE - 1))
        return await self._take_in(snapshot)
