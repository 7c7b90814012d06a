"""The daemon: runs its parts until it is told to stop.

After a crash, `recovery` makes store, scheduler and agents agree before the engine decides anything.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial

from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.clock import watch as watch_clock
from bftrainer.daemon.parts import Parts
from bftrainer.daemon.storage.disk import Disk
from bftrainer.daemon.storage.pruning import keep_runs
from bftrainer.model.events import Drain, PolicyChanged
from bftrainer.ports import Clock, Scheduler, Store
from bftrainer.settings.live import Refused
from bftrainer.settings.values import Settings


class Daemon(Parts):
    """Runs until `stop` is called. The caller holds `settings.state_dir`: it belongs to one daemon at a time.

    `tcp` is a bound socket on which agents on other machines reach us.
    """

    def __init__(
        self,
        settings: Settings,
        scheduler: Scheduler,
        store: Store,
        clock: Clock | None = None,
        tcp: socket.socket | None = None,
    ) -> None:
        super().__init__(settings, scheduler, store, clock or WallClock(), tcp)
        self._stop = asyncio.Event()

    async def run(
        self, listens: Callable[[], None] = lambda: None, works: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until `stop`; then let every trainer checkpoint, and leave no process behind. Calls `listens`
        once users can ask, and `works` once the scheduler has answered and what ran is taken over.

        Raises:
            BftrainerError: its socket cannot be made.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.journal.close)
            stack.callback(self.runner.close)
            stack.callback(self._store.interrupt)  # nothing that reads keeps the process from ending
            loading = asyncio.create_task(self._load())
            if not await self._unless_stopped(loading):
                loading.cancel()
                return
            await self.listeners.open(stack)
            stack.push_async_callback(self._scheduler.close)
            stack.callback(self.launcher.close)
            stack.callback(self.submissions.close)
            stack.push_async_callback(self.studies.close)
            stack.callback(self.nodes.close)
            stack.callback(self.lanes.close)
            listens()
            await self._serve(works)

    async def _load(self) -> None:
        """Read what the daemon before has left in the store, and store when this one began, and with what
        settings: a replay of what happened needs both."""
        settings = self.settings.current
        stored = await self.runner.aside(self._store.get, "runs")
        runs = keep_runs(stored or "[]", settings, self._started_at)
        now = {"begin": self._started_at, "settings": settings.model_dump(mode="json")}
        self.journal.remember("runs", json.dumps([*runs, now]))
        failed = await self.recovery.load()
        await self.runner.aside(self.load_index)
        await self.studies.load()
        for ended in failed:
            self.index.end(ended, self.clock.now(), None)

    def load_index(self) -> None:
        """Read into memory what lists, status and metrics need of the store."""
        self.index.load(self._store.unfinished_summaries(), self._store.count_ended_by_user())

    def stop(self) -> None:
        """Have `run` end, in order."""
        self._stop.set()

    def reload(self, wanted: Settings) -> Refused:
        """Take over what may change while trainers run, and decide by it. Returns what may not change.

        Raises:
            SettingsError: that does not go together with what stays; all is as it was.
        """
        refused = self.settings.reload(wanted)
        self.nodes.reload()
        self.listeners.reload()
        self.feed.begin_again()
        self.mailbox.emit(PolicyChanged(time=self.clock.now()))
        return refused

    async def _serve(self, works: Callable[[], None]) -> None:
        """Recover, then run every part until we are told to stop, then drain."""
        disk = Disk(self.settings.current.state_dir, self.settings, self.telemetry)
        clock = partial(watch_clock, self.clock, self.telemetry)
        # while it recovers, too: that takes long if the scheduler does not answer
        tasks = _tasks(clock=clock, disk=disk.run, store=self.journal.watch, bounds=self.listeners.tell)
        recovery = asyncio.create_task(self.recovery.run(self.agents))
        if await self._unless_stopped(recovery, *tasks):
            works()
            nodes = self.nodes
            tasks += _tasks(events=self.runner.run, polls=nodes.watch.run, pilots=nodes.hold.run)
            tasks += _tasks(studies=self.studies.run)
            await self._unless_stopped(*tasks)
            await self._wind_down()
        recovery.cancel()  # if it is not done, agents end by themselves when no daemon comes
        for task in tasks:
            task.cancel()

    async def _unless_stopped(self, *tasks: asyncio.Task[None]) -> bool:
        """Wait until the first of these is done; False if we are told to stop before."""
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        done = [task for task in tasks if task.done()]
        for task in done:
            task.result()  # a bug: crash loudly, the restart recovers
        return bool(done)

    async def _wind_down(self) -> None:
        """Drain: every trainer writes a checkpoint and leaves, then the pilots go."""
        self.mailbox.emit(Drain(time=self.clock.now()))
        deadline = self.clock.now() + self.settings.current.stop_grace_s + 5.0
        while self.clock.now() < deadline:
            await asyncio.sleep(0.05)
            if self.mailbox.idle and not self.launcher.any_workers():
                break
        await self.nodes.release.close(deadline)


def _tasks(**parts: Callable[[], Coroutine[None, None, None]]) -> list[asyncio.Task[None]]:
    """The parts, each begun as a task of its name."""
    return [asyncio.create_task(run(), name=name) for name, run in parts.items()]
