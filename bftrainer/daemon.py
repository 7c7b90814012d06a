"""The daemon: composes scheduler, engine, launcher, store and API, and owns the event loop.

Events are taken one at a time, in total order. For each: the engine decides, the decision is stored,
then it is acted on (write-ahead). After a crash, `_recover` makes store, scheduler and agents agree
by feeding the engine what it missed; nothing is started that may still run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bftrainer import engine, pool
from bftrainer.allocate import decide
from bftrainer.api.callers import NOBODY, Callers
from bftrainer.api.hub import Hub
from bftrainer.api.munge import Munge
from bftrainer.api.server import application, export, listen
from bftrainer.launch.launchers import Launchers
from bftrainer.lock import exclusively
from bftrainer.model import (
    Action,
    Drain,
    Ended,
    Event,
    NodesChanged,
    Pilot,
    Plan,
    PollFailed,
    Problem,
    Trainer,
    TrainerCancelled,
    TrainerSpec,
    TrainerSubmitted,
)
from bftrainer.ports import Clock, Message, Pause, Progress, Scheduler, SchedulerError, Store, StoredTrainer
from bftrainer.recovery import missed
from bftrainer.reload import Refused, reloaded
from bftrainer.service import DaemonService
from bftrainer.settings import Settings
from bftrainer.store import StoreError
from bftrainer.systemd import Pulse
from bftrainer.telemetry import Telemetry

log = logging.getLogger(__name__)

FLUSH_S = 2.0
LOOK_AGAIN_S = 0.02
MAX_POLL_S = 30.0


class WallClock:
    """`ports.Clock` of this machine."""

    def now(self) -> float:
        return time.time()


Decision = tuple[
    Event,
    Sequence[Trainer],
    Plan | None,
    Sequence[Action],
    Ended | None,
    frozenset[str],
]
"""The arguments of `Store.record`."""


@dataclass(slots=True)
class Held:
    """A pilot that was submitted for a node of the pool."""

    pilot: Pilot
    since: float


@dataclass(slots=True)
class Attempt:
    """Whether a write to the store succeeded."""

    failed: bool = False


@dataclass(slots=True)
class Health:
    """What is not as it should be, for `bftrainer status`; empty texts are good."""

    scheduler: str = ""
    store: str = ""
    failed_polls: int = 0


class Daemon:
    """Runs until `stop` is called. `settings.state_dir` belongs to one daemon at a time."""

    def __init__(
        self, settings: Settings, scheduler: Scheduler, store: Store, clock: Clock | None = None
    ) -> None:
        self.settings, self.scheduler, self.store = settings, scheduler, store
        self.clock = clock or WallClock()
        self.state = engine.State(settings=settings.engine)
        self.health = Health()
        self.pulse = Pulse()
        self.telemetry = Telemetry()
        self.last_plan: Plan | None = None
        self.started_at = self.clock.now()
        self.progress: dict[int, Progress] = {}
        self.known: dict[int, TrainerSpec] = {}
        self.pilots: dict[str, Held] = {}
        self.nodes: tuple[str, ...] = ()
        self._pool = pool.Pool()
        self.recovering = True
        self._wanted: dict[str, set[int]] = {}  # node -> trainers that may be there, while recovering
        self._unwritten: deque[Decision] = deque()  # what could not be stored yet
        self._pauses: deque[Pause] = deque()
        self._unflushed: dict[int, Progress] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._idle = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self.hub = Hub(up=self._agent_up, down=self._agent_down, said=self._agent_said)
        self.launcher = Launchers.over(
            self.hub,
            self.emit,
            self,
            nodes_see_us_at=settings.address,
            state_dir=settings.state_dir,
            orphan_s=settings.orphan_s,
            warm_pool=settings.warm_pool,
            trainer_dir=settings.trainer_dir,
            mark=self._mark(),
            grace_s=settings.stop_grace_s,
            clock=self.clock.now,
        )

    # life

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`; then let every trainer checkpoint, and leave no process behind.

        Raises:
            BftrainerError: another daemon has the state directory, or its socket cannot be made.
        """
        with exclusively(self.settings.state_dir):
            self._note_run()
            stored = await self._survey()
            service, callers = DaemonService(self), self._callers()
            runner = await listen(
                application(service, self.hub, callers),
                self.settings.socket,
                for_all=self.settings.mode == "site",
            )
            exporter = None
            try:
                if self.settings.metrics_port is not None:
                    open_ = self.settings.mode == "single" or self.settings.metrics_trainers
                    reader = callers.known(os.geteuid()) if open_ else NOBODY
                    exporter = await export(service, self.settings.metrics_port, reader)
                await self._recover(stored)
                tasks = [
                    asyncio.create_task(run(), name=name)
                    for name, run in (
                        ("events", self._take_events),
                        ("polls", self._poll_for_ever),
                        ("flush", self._flush_for_ever),
                    )
                ]
                ready()
                stopping = asyncio.create_task(self._stop.wait())
                await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()  # a bug: crash loudly, the restart recovers
                await self._wind_down()
                for task in tasks:
                    task.cancel()
            finally:
                self._flush()
                self.launcher.close()
                await self.scheduler.close()
                await runner.cleanup()
                if exporter is not None:
                    await exporter.cleanup()
                self.settings.socket.unlink(missing_ok=True)

    def stop(self) -> None:
        self._stop.set()

    def reload(self, wanted: Settings) -> Refused:
        """Take over what may change while trainers run; the next event is decided by it.

        Raises:
            SettingsError: that does not go together with what stays; all is as it was.
        """
        self.settings, refused = reloaded(self.settings, wanted)
        return refused

    def _callers(self) -> Callers:
        own = self.settings
        munge = Munge(own.munge_socket) if own.munge else None
        return Callers(site=own.mode == "site", admins=own.admins, munge=munge)

    def _mark(self) -> str:
        """What tells these books from others."""
        mark = self.store.get("mark") or uuid.uuid4().hex[:6]
        self.store.put("mark", mark)
        return mark

    def _note_run(self) -> None:
        """Remember when each daemon began, and with what settings: a replay of the books needs both."""
        with self._storing():
            runs = json.loads(self.store.get("runs") or "[]")
            now = {"begin": self.started_at, "settings": self.settings.model_dump(mode="json")}
            self.store.put("runs", json.dumps([*runs, now]))

    async def _wind_down(self) -> None:
        """Drain: every trainer checkpoints and leaves, then the pilots go."""
        self.emit(Drain(time=self.clock.now()))
        deadline = self.clock.now() + self.settings.stop_grace_s + 5.0
        while self.clock.now() < deadline:
            await asyncio.sleep(0.05)
            if self._idle.is_set() and not any(self.launcher.workers(t) for t in self.known):
                break
        for pilot in await self.scheduler.pilots():
            await self.scheduler.cancel(pilot)
        while await self.scheduler.pilots() and self.clock.now() < deadline:
            await asyncio.sleep(0.05)

    # events

    def emit(self, event: Event) -> None:
        """Queue an event; one that lies in the future is queued when it is due."""
        delay = event.time - self.clock.now()
        if delay > 0:
            loop = asyncio.get_running_loop()
            loop.call_later(delay, self._enqueue, event)
        else:
            self._enqueue(event)

    def _enqueue(self, event: Event) -> None:
        self._idle.clear()
        self._events.put_nowait(event)

    async def _take_events(self) -> None:
        while True:
            batch = [await self._events.get()]
            while not self._events.empty():
                batch.append(self._events.get_nowait())
            for event in sorted(batch, key=lambda e: (e.time, e.priority)):
                with self.pulse.at_work():
                    await self._take(event)
            if self._events.empty():
                self._idle.set()

    async def _take(self, event: Event) -> None:
        before = replace(self.state, settings=self.settings.engine)  # they may have been reloaded
        step = await asyncio.to_thread(engine.step, before, event, self._solve)
        self.state = step.state
        if step.plan is not None:
            self.last_plan = step.plan
        self.telemetry.took(event, step.plan, step.actions, step.ended)
        changed = [t for t in step.state.active.values() if before.active.get(t.id) is not t]
        self._unwritten.append((event, changed, step.plan, step.actions, step.ended, step.state.pool))
        actions = self._write()
        for action in step.actions:
            self.launcher.perform(action)
        self._done(actions)
        if step.ended is not None:
            self._flush()

    def _write(self) -> list[int]:
        """Store what has been decided, in order. Returns the last decision's actions, if it is stored.

        The machine does not wait for our disk: while nothing can be stored, the daemon goes on in
        memory and says so; everything is written when the disk is back.
        """
        actions: list[int] = []
        while self._unwritten:
            self._done(actions)  # an earlier decision, long acted on
            with self._storing() as attempt:
                actions = self.store.record(*self._unwritten[0])
            if attempt.failed:
                return []
            self._unwritten.popleft()
        return actions

    def _done(self, actions: list[int]) -> None:
        if actions:
            with self._storing():
                self.store.performed(actions, self.clock.now())

    @contextmanager
    def _storing(self) -> Iterator[Attempt]:
        """Around a write to the store: a failure is remembered in the health, not raised."""
        attempt = Attempt()
        try:
            yield attempt
        except StoreError as error:
            attempt.failed = True
            self.health.store = str(error)
            self.telemetry.metrics.store_failures.inc()
        else:
            self.health.store = ""
        self.telemetry.condition("store", self.health.store)

    def _solve(self, problem: Problem) -> Plan:
        started = time.perf_counter()
        plan = decide(problem, self.settings.engine)
        return replace(plan, solve_s=time.perf_counter() - started)

    # the scheduler

    async def _poll_for_ever(self) -> None:
        while True:
            wait = self.settings.poll_s
            try:
                await self._poll()
                self.health.failed_polls, self.health.scheduler = 0, ""
            except SchedulerError as error:
                self.health.failed_polls += 1
                if self.health.failed_polls >= self.settings.failed_polls:
                    self.health.scheduler = f"{self.health.failed_polls} polls failed: {error}"
                self.emit(PollFailed(time=self.clock.now(), reason=str(error)))
                wait = min(MAX_POLL_S, wait * 2**self.health.failed_polls)
            await asyncio.sleep(wait)

    async def _poll(self) -> None:
        snapshot = await self.scheduler.poll()
        self.nodes = tuple(node.name for node in snapshot.nodes)
        self._pool, change = pool.observe(self._pool, snapshot, self.settings.debounce_s)
        if change is not None:
            for node in change.left:
                await self._drop(node)
            self.emit(change)
        if not self._stop.is_set():
            await self._hold_pool()

    async def _hold_pool(self) -> None:
        """One pilot on every node of the pool; those that do not report in time are given up."""
        now = self.clock.now()
        for node in sorted(self._pool.nodes):
            held = self.pilots.get(node)
            if held is None:
                pilot = Pilot(tag=uuid.uuid4().hex, node=node)
                self.pilots[node] = Held(pilot, now)
                try:
                    await self.scheduler.submit(pilot)
                except SchedulerError as error:
                    log.warning("no pilot on %s: %s", node, error)
                    del self.pilots[node]
            elif not self.hub.connected(node) and now - held.since > self.settings.pilot_start_s:
                log.warning("the pilot on %s did not report within %g s", node, now - held.since)
                self._lose(node, "its pilot did not start")
                await self._drop(node)

    async def _drop(self, node: str) -> None:
        self.launcher.agent_down(node)
        held = self.pilots.pop(node, None)
        if held is not None and not self._stop.is_set():
            try:
                await self.scheduler.cancel(held.pilot)
            except SchedulerError as error:
                log.warning("cannot cancel the pilot on %s: %s", node, error)

    def _lose(self, node: str, reason: str) -> None:
        self._pool, change = pool.lose(self._pool, node, self.clock.now(), reason)
        if change is not None:
            self.emit(change)

    # agents

    def _agent_up(self, node: str, tag: str, inventory: list[Message]) -> bool:
        held = self.pilots.get(node)
        if held is None or held.pilot.tag != tag:
            log.warning("an agent on %s that belongs to no pilot of ours: sent away", node)
            return False
        wanted = (
            self._wanted.get(node, set())
            if self.recovering
            else {t.id for t in self.state.active.values() if node in t.nodes}
        )
        self.launcher.agent_up(node, inventory, wanted)
        return True

    def _agent_down(self, node: str) -> None:
        task = asyncio.get_running_loop().create_task(self._after_loss(node))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _after_loss(self, node: str) -> None:
        """An agent's connection is gone. Its pilot too, usually: that takes a moment to show. If the
        pilot lives on, only the connection broke, and the agent gets the time to come back."""
        held, deadline = self.pilots.get(node), self.clock.now() + self.settings.reconnect_s
        while held is not None and not self._stop.is_set() and self.clock.now() < deadline:
            if self.hub.connected(node) or self.pilots.get(node) is not held:
                return
            try:
                if held.pilot not in await self.scheduler.pilots():
                    break
            except SchedulerError as error:
                log.warning("cannot ask for the pilot on %s: %s", node, error)
            await asyncio.sleep(LOOK_AGAIN_S)
        if not self.hub.connected(node) and self.pilots.get(node) is held:
            self._lose(node, "its agent is gone")
            await self._drop(node)

    def _agent_said(self, node: str, message: Message) -> None:
        self.launcher.said(node, message)

    # ports.Books

    def progressed(self, progress: Progress) -> None:
        self.progress[progress.trainer] = self._unflushed[progress.trainer] = progress

    def pause(self, pause: Pause) -> None:
        self._pauses.append(pause)
        self.telemetry.paused(pause)
        self._write_pauses()

    def _write_pauses(self) -> None:
        while self._pauses:
            with self._storing() as attempt:
                self.store.pause(self._pauses[0])
            if attempt.failed:
                return
            self._pauses.popleft()

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._flush()

    def _flush(self) -> None:
        if self._unwritten:
            self._done(self._write())
        self._write_pauses()
        if self._unflushed:
            rows, self._unflushed = self._unflushed, {}
            with self._storing() as attempt:
                self.store.progress(list(rows.values()))
            if attempt.failed:
                self._unflushed = rows | self._unflushed

    # users

    async def submit(self, wanted: TrainerSpec) -> int:
        """Store a trainer, then tell the engine. Raises `StoreError`: then nothing was stored."""
        now = self.clock.now()
        id_ = self.store.submit(wanted, now)
        self.known[id_] = wanted
        self.launcher.add(id_, wanted)
        self.emit(TrainerSubmitted(time=now, trainer=id_, spec=wanted))
        return id_

    def cancel(self, trainer: int) -> None:
        self.emit(TrainerCancelled(time=self.clock.now(), trainer=trainer))

    # recovery

    async def _survey(self) -> list[StoredTrainer]:
        """What there is, before any agent is let in: unfinished trainers, and pilots on idle nodes."""
        stored = [t for t in self.store.trainers() if not t.status.final]
        for t in stored:
            self.known[t.id] = t.spec
            self.launcher.add(
                t.id,
                t.spec,
                published=t.engine.published,
                members=t.engine.members,
                step=t.step,
                samples=t.samples,
            )
            for node in t.engine.nodes:
                self._wanted.setdefault(node, set()).add(t.id)
        idle = await self._first_poll()
        now = self.clock.now()
        for pilot in await self.scheduler.pilots():
            if pilot.node in idle and pilot.node not in self.pilots:
                self.pilots[pilot.node] = Held(pilot, now)
            else:
                await self.scheduler.cancel(pilot)
        return stored

    async def _recover(self, stored: list[StoredTrainer]) -> None:
        """Make store, scheduler and agents agree after a restart.

        Pilots that still run on idle nodes are taken over with their workers; the engine is told of
        every node and worker that is missing, and of memberships that were not carried through.
        """
        recorded = frozenset(node for t in stored for node in t.engine.nodes)
        now = self.clock.now()
        deadline = now + self.settings.reconnect_s
        while self.clock.now() < deadline and not all(self.hub.connected(n) for n in self.pilots):
            await asyncio.sleep(0.02)
        for node in [n for n in self.pilots if not self.hub.connected(n)]:
            await self._drop(node)
        present = frozenset(self.pilots)
        self.recovering = False
        self._pool = pool.Pool(nodes=present)
        self.state = engine.restore(
            self.settings.engine,
            recorded | present,
            [replace(t.engine, spec=t.spec) for t in stored],
            self.clock.now(),
        )
        if recorded - present:
            self.emit(
                NodesChanged(time=self.clock.now(), left=recorded - present, reason="gone after a restart")
            )
        for event in missed(self.state, self.launcher.views, present, self.clock.now()):
            self.emit(event)
        if stored:
            log.info(
                "recovered %d trainers; %d pilots taken over, %d nodes lost",
                *(len(stored), len(present), len(recorded - present)),
            )

    async def _first_poll(self) -> frozenset[str]:
        while True:
            try:
                return (await self.scheduler.poll()).idle
            except SchedulerError as error:
                self.health.scheduler = str(error)
                log.warning("cannot ask the scheduler yet: %s", error)
                await asyncio.sleep(self.settings.poll_s)
