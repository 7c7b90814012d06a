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
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from bftrainer.allocate import decide
from bftrainer.api.callers import NOBODY, Callers
from bftrainer.api.listen import export, listen, listen_tcp
from bftrainer.api.munge import Munge
from bftrainer.api.routes import application
from bftrainer.daemon.lock import exclusively
from bftrainer.daemon.recovery import missed
from bftrainer.daemon.service import DaemonService
from bftrainer.daemon.systemd import Pulse
from bftrainer.engine.restore import restore
from bftrainer.engine.state import State
from bftrainer.engine.step import step as engine_step
from bftrainer.errors import SchedulerError, StoreError
from bftrainer.launch.launchers import Launchers
from bftrainer.model.actions import Action, Ended
from bftrainer.model.events import (
    Drain,
    Event,
    NodesChanged,
    PolicyChanged,
    Resume,
    TrainerCancelled,
    TrainerSubmitted,
)
from bftrainer.model.machine import Operation, Snapshot
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.reports import Message, Pause, Progress, StoredTrainer
from bftrainer.model.trainer import Trainer, TrainerSpec
from bftrainer.nodes.nodes import Nodes
from bftrainer.ports import Clock, Scheduler, Store
from bftrainer.settings.live import Refused, reloaded
from bftrainer.settings.values import Settings
from bftrainer.telemetry.log import names, note
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.wire.hub import Hub
from bftrainer.wire.seal import load_key, of_pilot

log = logging.getLogger(__name__)

FLUSH_S = 2.0


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
class Attempt:
    """Whether a write to the store succeeded."""

    failed: bool = False


@dataclass(slots=True)
class Health:
    """What is not as it should be with ourselves, for `bftrainer status`; empty texts are good."""

    store: str = ""


class Daemon:
    """Runs until `stop` is called. `settings.state_dir` belongs to one daemon at a time.

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
        self.settings, self.scheduler, self.store = settings, scheduler, store
        self.clock = clock or WallClock()
        self.state = State(settings=settings.engine)
        self.health = Health()
        self.pulse = Pulse()
        self.telemetry = Telemetry()
        self.last_plan: Plan | None = None
        self.started_at = self.clock.now()
        self.progress: dict[int, Progress] = {}
        self.known: dict[int, TrainerSpec] = {}
        self._tcp = tcp
        self.recovering = True
        self._surveyed = False  # whether it is known which pilots there are
        self._wanted: dict[str, set[int]] = {}  # node -> trainers that may be there, while recovering
        self._unwritten: deque[Decision] = deque()  # what could not be stored yet
        self._pauses: deque[Pause] = deque()
        self._unflushed: dict[int, Progress] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._idle = asyncio.Event()
        self._stop = asyncio.Event()
        key = load_key(settings.state_dir / "key")
        self.hub = Hub(partial(of_pilot, key))
        self.hub.listen(self)
        self.nodes = Nodes(self, key)
        self.launcher = Launchers.over(
            self,
            self.emit,
            self,
            nodes_see_us_at=settings.address,
            state_dir=settings.state_dir,
            orphan_s=settings.orphan_s,
            warm_pool=settings.warm_pool,
            trainer_dir=settings.trainer_dir,
            store_id=self._store_id(),
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
            stored = self._remembered()
            service, callers = DaemonService(self), self._callers()
            app = partial(application, service, self.hub, callers)
            runner = await listen(app(), self.settings.socket, for_all=self.settings.mode == "site")
            others = []
            try:
                if self._tcp is not None:
                    others.append(await listen_tcp(app(), self._tcp))
                if self.settings.metrics_port is not None:
                    open_ = self.settings.mode == "single" or self.settings.metrics_trainers
                    reader = callers.known(os.geteuid()) if open_ else NOBODY
                    others.append(await export(service, self.settings.metrics_port, reader))
                ready()
                recovery = asyncio.create_task(self._recover(stored))
                if not await self._unless_stopped(recovery):
                    recovery.cancel()  # agents end by themselves when no daemon comes
                    return
                tasks = [
                    asyncio.create_task(run(), name=name)
                    for name, run in (
                        ("events", self._take_events),
                        ("polls", self.nodes.poll_for_ever),
                        ("pilots", self.nodes.hold_for_ever),
                        ("flush", self._flush_for_ever),
                    )
                ]
                await self._unless_stopped(*tasks)
                await self._wind_down()
                for task in tasks:
                    task.cancel()
            finally:
                self._flush()
                self.launcher.close()
                await self.scheduler.close()
                await runner.cleanup()
                for other in others:
                    await other.cleanup()
                self.settings.socket.unlink(missing_ok=True)

    def stop(self) -> None:
        self._stop.set()

    async def _unless_stopped(self, *tasks: asyncio.Task[None]) -> bool:
        """Wait until the first of these is done; False if we are told to stop before."""
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        done = [task for task in tasks if task.done()]
        for task in done:
            task.result()  # a bug: crash loudly, the restart recovers
        return bool(done)

    def reload(self, wanted: Settings) -> Refused:
        """Take over what may change while trainers run, and decide by it.

        Raises:
            SettingsError: that does not go together with what stays; all is as it was.
        """
        self.settings, refused = reloaded(self.settings, wanted)
        self.nodes.reload()
        self.emit(PolicyChanged(time=self.clock.now()))
        return refused

    def _callers(self) -> Callers:
        own = self.settings
        munge = Munge(own.munge_socket) if own.munge else None
        return Callers(site=own.mode == "site", admins=lambda: self.settings.admins, munge=munge)

    def _store_id(self) -> str:
        """What tells these books from others."""
        mark = self.store.get("mark")
        if mark is None:
            mark = uuid.uuid4().hex[:6]
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
            if self._idle.is_set() and not self.launcher.any_workers():
                break
        await self.nodes.close(deadline)

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
        step = await asyncio.to_thread(engine_step, before, event, self._solve)
        self.state = step.state
        if step.plan is not None:
            self.last_plan = step.plan
        self.telemetry.took(event, step.plan, step.actions, step.ended)
        changed = [t for t in step.state.active.values() if before.active.get(t.id) is not t]
        self._unwritten.append((event, changed, step.plan, step.actions, step.ended, step.state.pool))
        actions = self._write()
        self.launcher.perform(step.actions)
        self._done(actions)
        if step.actions or step.ended:
            self.nodes.planned()
        if step.ended is not None:
            self.launcher.forget(step.ended.trainer)
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

    # wire.hub.AgentEvents

    def is_open(self) -> bool:
        return self._surveyed

    def up(self, node: str, tag: str, inventory: list[Message]) -> bool:
        pilots = self.nodes.pilots
        if pilots.known(node, tag) is None or node in pilots.releasing:
            self.telemetry.trouble("agent", "it belongs to no pilot of ours: sent away", node=node)
            return False
        pilots.reports(node)
        there = (
            self._wanted.get(node, set())
            if self.recovering
            else {t.id for t in self.state.active.values() if node in t.nodes}
        )
        wanted = {id_ for id_ in there if self.serves(node, self.known[id_])}
        self.launcher.agent_up(node, inventory, wanted)
        return True

    def down(self, node: str) -> None:
        self.nodes.agent_down(node)

    def said(self, node: str, message: Message) -> None:
        if message.get("type") == "bye":
            self.nodes.agent_leaves(node)
        else:
            self.launcher.said(node, message)

    # ports.Link

    def serves(self, node: str, spec: TrainerSpec) -> bool:
        return self.hub.connected(node) and self.nodes.pilots.runs_as(node, self.nodes.user_of(spec))

    def send(self, node: str, message: Message) -> None:
        self.hub.send(node, message)

    # ports.Journal

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

    # the site

    def administer(self, operation: Operation) -> None:
        """Pause, drain or resume, until told otherwise: a restart changes nothing."""
        before, self.nodes.operation = self.nodes.operation, operation
        with self._storing():
            self.store.put("operation", operation.value)
        if operation is Operation.DRAINING:
            self.emit(Drain(time=self.clock.now()))
        elif before is Operation.DRAINING:
            self.emit(Resume(time=self.clock.now()))
        self.nodes.wake()

    # recovery

    def _remembered(self) -> list[StoredTrainer]:
        """The unfinished trainers, made known to those who will hear of them."""
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
        return stored

    async def _survey(self) -> None:
        """The pilots that run on idle nodes, before any agent is let in. Takes as long as it takes until the
        scheduler answers; what runs goes on meanwhile."""
        first = await self._first_poll()
        await self.nodes.pilots.cancel(self.nodes.take_over(first))
        self._surveyed = True

    async def _recover(self, stored: list[StoredTrainer]) -> None:
        """Make store, scheduler and agents agree after a restart.

        Pilots that still run on idle nodes are taken over with their workers; the engine is told of
        every node and worker that is missing, and of memberships that were not carried through.
        """
        await self._survey()
        recorded = frozenset(node for t in stored for node in t.engine.nodes)
        now = self.clock.now()
        deadline = now + self.settings.reconnect_s
        while self.clock.now() < deadline and not all(self.hub.connected(n) for n in self.nodes.pilots.held):
            await asyncio.sleep(0.02)
        for node in [n for n in self.nodes.pilots.held if not self.hub.connected(n)]:
            self.nodes.drop(node)
        present = frozenset(self.nodes.pilots.held)
        self.recovering = False
        self.nodes.begin(present)
        self.state = restore(
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
        self.nodes.operation = Operation(self.store.get("operation") or Operation.RUNNING)
        if self.nodes.operation is Operation.DRAINING:
            self.emit(Drain(time=self.clock.now()))
        if stored:
            lost = len(recorded - present)
            note(log, "taken_over", trainers=len(stored), nodes=names(present), nodes_lost=lost)
        self.telemetry.pilot("adopted", [held.pilot for held in self.nodes.pilots.held.values()])

    async def _first_poll(self) -> Snapshot:
        while True:
            try:
                return await self.scheduler.poll()
            except SchedulerError as error:
                self.nodes.poll_status.trouble = f"cannot be asked yet: {error}"
                self.telemetry.condition("scheduler", self.nodes.poll_status.trouble)
                await asyncio.sleep(self.settings.poll_s)
