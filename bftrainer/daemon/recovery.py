"""Makes store, scheduler and agents agree after a restart of the daemon.

What runs is asked of those that run it: pilots of the scheduler, workers of the agents. The store says what
was wanted. The engine gets the differences as events; nothing is started that may still run.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bftrainer.daemon.agents import AgentReports
from bftrainer.daemon.mailbox import Mailbox
from bftrainer.daemon.orders import OPERATION
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.storage.journal import StoreJournal
from bftrainer.engine.restore import restore
from bftrainer.engine.state import State
from bftrainer.errors import SchedulerError
from bftrainer.model.actions import Ended
from bftrainer.model.events import Drain, Event, NodesChanged, Resync, WorkerLost, WorkersReady
from bftrainer.model.machine import Operation, Snapshot
from bftrainer.model.reports import StoredTrainer
from bftrainer.model.trainer import Trainer, TrainerSpec, TrainerStatus
from bftrainer.nodes.nodes import Nodes
from bftrainer.nodes.pilots import Pilots
from bftrainer.ports import Clock, Launcher, Scheduler, Store, WorkerState
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.log import names, note
from bftrainer.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

AT_ONCE = 200
"""Trainers that are restored, in a few milliseconds, before other work has its turn."""


def missed(
    state: State, views: Callable[[int], Mapping[str, WorkerState]], present: frozenset[str], now: float
) -> list[Event]:
    """The events that happened while no daemon ran, on the nodes that are `present`. Pure.

    `views` gives a trainer's workers by node, as their agents have just reported. Nodes that are not present
    leave the pool by an event of their own.
    """
    return [
        event
        for trainer in state.active.values()
        for event in _of(trainer, views(trainer.id), trainer.nodes & present, now)
    ]


def _of(t: Trainer, views: Mapping[str, WorkerState], nodes: frozenset[str], now: float) -> list[Event]:
    events: list[Event] = []
    apart = False
    for node in sorted(nodes):
        view, started = views.get(node), t.started.get(node, 0)
        if view is None or view.generation != started:
            events.append(
                WorkerLost(
                    time=now, trainer=t.id, node=node, generation=started, reason="gone after a restart"
                )
            )
        elif node not in t.members and view.phase in ("ready", "member"):  # it may have joined since
            events.append(WorkersReady(time=now, trainer=t.id, generation=started, nodes=frozenset({node})))
        elif node in t.members and view.joined != t.published and view.phase != "finished":
            apart = True
    if apart:
        events.append(Resync(time=now, trainer=t.id, generation=t.published))
    return events


def with_heard(state: State, views: Callable[[int], Mapping[str, WorkerState]]) -> State:
    """The state in which no generation comes twice. Pure.

    Workers may have heard of later ones than the store has, if the disk was full when the daemon died. They
    and their agents ignore orders of a generation that they know already.
    """

    def heard(t: Trainer) -> int:
        there = (views(t.id).get(node) for node in t.nodes)
        return max((max(view.generation, view.joined) for view in there if view is not None), default=0)

    active = {
        id_: replace(t, generation=latest) if (latest := heard(t)) > t.generation else t
        for id_, t in state.active.items()
    }
    return replace(state, active=active)


@dataclass(slots=True, kw_only=True)
class Recovery:
    """The start of a daemon, up to the moment when the engine's state is what really runs."""

    settings: LiveSettings
    clock: Clock
    store: Store
    scheduler: Scheduler
    journal: StoreJournal
    mailbox: Mailbox
    launcher: Launcher
    pilots: Pilots
    nodes: Nodes
    runner: Runner
    telemetry: Telemetry
    active: bool = True  # until the engine's state is restored
    _stored: list[StoredTrainer] = field(default_factory=list)
    _stored_on: dict[str, dict[int, TrainerSpec]] = field(default_factory=dict)  # by node

    async def load(self) -> list[Ended]:
        """Read the unfinished trainers, and make them known to launcher and journal.

        One that the store holds damaged fails, and keeps no other one back: returns the ends of those.
        """
        damaged: dict[int, str] = {}
        every = await self.runner.aside(self.store.unfinished, damaged.__setitem__)
        for number, t in enumerate(every, 1):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn
            try:
                self._add(t)
            except LookupError:
                damaged[t.id] = f"trainer {t.id} is damaged in the store: its launcher {t.spec.launcher!r}"
        failed = []
        for id_, why in damaged.items():
            self.telemetry.trouble("recovery", why, trainer=id_, instead="the trainer has failed")
            reason = f"{why}; its checkpoints are kept: submit it again"
            failed.append(Ended(trainer=id_, status=TrainerStatus.FAILED, reason=reason))
            self.journal.ended(failed[-1])
        return failed

    def _add(self, t: StoredTrainer) -> None:
        """Make a stored trainer known."""
        self.launcher.add(
            t.id,
            t.spec,
            published=t.engine.published,
            members=t.engine.members,
            step=t.step,
            samples=t.samples,
        )
        self.journal.begin(t.id)
        self._stored.append(t)
        for node in t.engine.nodes:
            self._stored_on.setdefault(node, {})[t.id] = t.spec

    def trainers_on(self, node: str) -> Mapping[int, TrainerSpec]:
        """The trainers that may have workers on a node: as stored while recovering, then as decided."""
        if self.active:
            return self._stored_on.get(node, {})
        return {t.id: t.spec for t in self.runner.trainers() if node in t.nodes}

    async def run(self, agents: AgentReports) -> None:
        """Take over pilots that still run on idle nodes, with their workers; then tell the engine of every
        node and worker that is missing, and of memberships that were not carried through."""
        await self.survey()
        agents.opened = True
        operation = await self.runner.aside(self._operation)
        pool = frozenset(self._stored_on) | await self._present()
        state = await self.runner.aside(self._restored, pool)
        present = self._still_present()
        self.active = False
        self.nodes.state.begin(present)
        self.runner.state = with_heard(state, self.launcher.views)
        if pool - present:
            self.mailbox.emit(
                NodesChanged(time=self.clock.now(), left=pool - present, reason="gone after a restart")
            )
        for event in missed(self.runner.state, self.launcher.views, present, self.clock.now()):
            self.mailbox.emit(event)
        self.nodes.state.operation = operation
        if operation is Operation.DRAINING:
            self.mailbox.emit(Drain(time=self.clock.now()))
        if self._stored:
            lost = len(pool - present)
            note(log, "taken_over", trainers=len(self._stored), nodes=names(present), nodes_lost=lost)
        self.telemetry.pilot("adopted", list(self.pilots.records.pilots.values()))
        self._stored, self._stored_on = [], {}

    def _restored(self, pool: frozenset[str]) -> State:
        """The engine's state as it was stored, with these nodes. Takes long where many trainers wait."""
        trainers = [replace(t.engine, spec=t.spec) for t in self._stored]
        state = restore(self.settings.current.engine, pool, trainers, self.clock.now())
        gc.freeze()  # the trainers stay: to go through all of them again and again would stop everything
        return state

    def _operation(self) -> Operation:
        """Return the site's latest permission."""
        stored = self.store.get(OPERATION) or ""
        return Operation(stored) if stored in Operation.__members__.values() else Operation.RUNNING

    async def survey(self) -> None:
        """Find the pilots that run on idle nodes, before any agent is let in. This takes until the scheduler
        answers; what runs goes on meanwhile."""
        first = await self._first_poll()
        await self.pilots.cancel(self.pilots.take_over(first.pilots))

    async def _first_poll(self) -> Snapshot:
        while True:
            try:
                snapshot = await self.scheduler.poll()
                self.nodes.watch.note(snapshot)
                return snapshot
            except SchedulerError as error:
                self.telemetry.condition("scheduler", f"cannot be asked yet: {error}")
                await asyncio.sleep(self.settings.current.poll_s)

    async def _present(self) -> frozenset[str]:
        """The nodes whose agents come back within `reconnect_s`; pilots of the others are ended."""
        pilots, deadline = self.pilots, self.clock.now() + self.settings.current.reconnect_s
        while self.clock.now() < deadline and not all(
            pilots.connected(node) for node in pilots.records.pilots
        ):
            await asyncio.sleep(0.02)
        return self._still_present()

    def _still_present(self) -> frozenset[str]:
        """The nodes whose agents have not gone again meanwhile."""
        self.nodes.release.drop(
            [node for node in self.pilots.records.pilots if not self.pilots.connected(node)]
        )
        return frozenset(self.pilots.records.pilots)
