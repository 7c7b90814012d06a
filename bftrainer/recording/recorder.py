"""Polls a batch system and writes what it shows, until it is told to stop. Whatever fails, it goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from bftrainer.errors import BftrainerError, SchedulerError
from bftrainer.messages.files.places import FOLDER_FULL
from bftrainer.model.machine import Snapshot
from bftrainer.ports import Clock
from bftrainer.recording import lines
from bftrainer.recording.lines import RecordedMachine
from bftrainer.recording.series import Series

LONGEST_S = 300.0
"""Longest seconds between polls of a batch system that does not answer."""


class WatchedScheduler(Protocol):
    """The part of `ports.Scheduler` that a recorder needs: it only looks."""

    async def poll(self) -> Snapshot:
        """The machine as it is now. Raises `SchedulerError`."""
        ...

    async def close(self) -> None:
        """End what the object itself runs."""
        ...


@dataclass
class Counts:
    """Counts of a recorder: snapshots written, polls without an answer, and snapshots that it could not
    write."""

    snapshots: int = 0
    failed: int = 0
    unwritten: int = 0


class SiteRecorder:
    """Polls `scheduler` every `poll_s` seconds and writes to `series`. `header` begins each file; `say` tells
    the operator when something begins to fail, and when it works again."""

    def __init__(
        self,
        scheduler: WatchedScheduler,
        series: Series,
        clock: Clock,
        *,
        header: str,
        poll_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._scheduler, self._series, self._clock = scheduler, series, clock
        self._header, self._poll_s, self._say = header, poll_s, say
        self._before: RecordedMachine | None = None  # as the last line of the present file has it
        self._troubles: dict[str, str] = {}
        self.counts = Counts()

    async def run(self, stop: asyncio.Event, hours: float | None = None) -> None:
        """Record until `stop` is set, or for `hours`; then close the scheduler.

        Raises:
            BftrainerError: the series has all the bytes that it may have.
        """
        try:
            await self._run(stop, hours)
        finally:
            await self._scheduler.close()

    async def _run(self, stop: asyncio.Event, hours: float | None) -> None:
        due = begin = time.monotonic()
        failures = 0
        while not stop.is_set() and (hours is None or time.monotonic() - begin < hours * 3600):
            answered = await self._poll(stop)
            failures = 0 if answered else failures + 1
            if self._series.full:
                raise BftrainerError(FOLDER_FULL.say(folder=self._series.folder))
            # after a poll that took long the next one is not late, but where it would have been
            wait = min(max(LONGEST_S, self._poll_s), self._poll_s * 2.0 ** min(failures, 10))
            due = max(due + wait, time.monotonic() + wait / 10)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), due - time.monotonic())

    async def _poll(self, stop: asyncio.Event) -> bool:
        """Ask once and write what came; whether an answer came."""
        asked = asyncio.create_task(self._scheduler.poll())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({asked, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                return True
            snapshot = asked.result()
        except SchedulerError as error:
            self.counts.failed += 1
            self._note("the batch system does not answer", str(error))
            await self._write(self._clock.now(), lambda: [lines.failed(self._clock.now())])
            return False
        finally:
            for task in (asked, stopping):
                task.cancel()
            await asyncio.gather(asked, stopping, return_exceptions=True)
        self._note("the batch system does not answer", "")
        await self._record(snapshot)
        return True

    async def _record(self, snapshot: Snapshot) -> None:
        found: RecordedMachine | None = None

        def told() -> Sequence[str]:
            nonlocal found
            found = lines.machine(snapshot)
            return [lines.line(snapshot, found, self._before)]

        if await self._write(snapshot.time, told):
            self._before = found
            self.counts.snapshots += 1
        else:
            self.counts.unwritten += 1

    async def _write(self, at: float, told: Callable[[], Sequence[str]]) -> bool:
        """Write lines in a thread, as disks may take long; whether that went well."""

        def write() -> None:
            if self._series.due(at):
                self._before = None
                self._series.begin(at, self._header)
            for line in told():
                self._series.append(line)

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            self._before = None  # what is written next must stand for itself
            self._note(f"{self._series.folder} cannot be written", error.strerror or str(error))
            return False
        self._note(f"{self._series.folder} cannot be written", "")
        return True

    def _note(self, what: str, why: str) -> None:
        """Say once that something fails, and when it works again."""
        before = self._troubles.get(what, "")
        if why and not before:
            self._say(f"{what}: {why}; recording goes on when it does")
        elif before and not why:
            self._say(f"again: {what.replace('does not answer', 'answers').replace('cannot', 'can')}")
        self._troubles[what] = why
