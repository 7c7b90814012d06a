"""How a restarted daemon makes store, scheduler and agents agree.

What runs is asked of those that run it: pilots of the scheduler, workers of the agents. The store says what
was wanted. The engine gets the differences as events; nothing is started that may still run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bftrainer.daemon.agents import AgentReports
from bftrainer.daemon.journal import Journal
from bftrainer.daemon.mailbox import Mailbox
from bftrainer.daemon.orders import OPERATION
from bftrainer.daemon.runner import Runner
from bftrainer.engine.restore import restore
from bftrainer.engine.state import State
from bftrainer.errors import SchedulerError
from bftrainer.model.events import Drain, Event, NodesChanged, Resync, WorkerLost, WorkersReady
from bftrainer.model.machine import Operation, Snapshot
from bftrainer.model.reports import StoredTrainer
from bftrainer.model.trainer import Trainer, TrainerSpec
from bftrainer.nodes.nodes import Nodes
from bftrainer.nodes.pilots import Pilots
from bftrainer.ports import Clock, Launcher, Scheduler, Store, WorkerState
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.log import names, note
from bftrainer.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)


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
        elif node not in t.members and view.phase == "ready":
            events.append(WorkersReady(time=now, trainer=t.id, generation=started, nodes=frozenset({node})))
        elif node in t.members and view.joined != t.published and view.phase != "finished":
            apart = True
    if apart:
        events.append(Resync(time=now, trainer=t.id, generation=t.published))
    return events


@dataclass(slots=True, kw_only=True)
class Recovery:
    """The start of a daemon, up to the moment when the engine's state is what really runs."""

    settings: LiveSettings
    clock: Clock
    store: Store
    scheduler: Scheduler
    journal: Journal
    mailbox: Mailbox
    launcher: Launcher
    pilots: Pilots
    nodes: Nodes
    runner: Runner
    telemetry: Telemetry
    active: bool = True  # until the engine's state is restored
    _stored: list[StoredTrainer] = field(default_factory=list)

    def load(self) -> None:
        """Read the unfinished trainers, and make them known to launcher and journal."""
        self._stored = self.store.unfinished()
        for t in self._stored:
            self.journal.begin(t.id)
            self.launcher.add(
                t.id,
                t.spec,
                published=t.engine.published,
                members=t.engine.members,
                step=t.step,
                samples=t.samples,
            )

    def trainers_on(self, node: str) -> Mapping[int, TrainerSpec]:
        """The trainers that may have workers on a node: as stored while recovering, then as decided."""
        if self.active:
            return {t.id: t.spec for t in self._stored if node in t.engine.nodes}
        return {t.id: t.spec for t in self.runner.trainers() if node in t.nodes}

    async def run(self, agents: AgentReports) -> None:
        """Take over pilots that still run on idle nodes, with their workers; then tell the engine of every
        node and worker that is missing, and of memberships that were not carried through."""
        await self.survey()
        agents.opened = True
        recorded = frozenset(node for t in self._stored for node in t.engine.nodes)
        present = await self._present()
        self.active = False
        self.nodes.state.begin(present)
        self.runner.state = restore(
            self.settings.current.engine,
            recorded | present,
            [replace(t.engine, spec=t.spec) for t in self._stored],
            self.clock.now(),
        )
        if recorded - present:
            self.mailbox.emit(
                NodesChanged(time=self.clock.now(), left=recorded - present, reason="gone after a restart")
            )
        for event in missed(self.runner.state, self.launcher.views, present, self.clock.now()):
            self.mailbox.emit(event)
        self.nodes.state.operation = Operation(self.store.get(OPERATION) or Operation.RUNNING)
        if self.nodes.state.operation is Operation.DRAINING:
            self.mailbox.emit(Drain(time=self.clock.now()))
        if self._stored:
            lost = len(recorded - present)
            note(log, "taken_over", trainers=len(self._stored), nodes=names(present), nodes_lost=lost)
        self.telemetry.pilot("adopted", [held.pilot for held in self.pilots.held.values()])
        self._stored = []

    async def survey(self) -> None:
        """Find the pilots that run on idle nodes, before any agent is let in. This takes until the scheduler
        answers; what runs goes on meanwhile."""
        first = await self._first_poll()
        await self.pilots.cancel(self.pilots.take_over(first.pilots))

    async def _first_poll(self) -> Snapshot:
        while True:
            try:
                return await self.scheduler.poll()
            except SchedulerError as error:
                self.telemetry.condition("scheduler", f"cannot be asked yet: {error}")
                await asyncio.sleep(self.settings.current.poll_s)

    async def _present(self) -> frozenset[str]:
        """The nodes whose agents come back within `reconnect_s`; pilots of the others are ended."""
        pilots, deadline = self.pilots, self.clock.now() + self.settings.current.reconnect_s
        while self.clock.now() < deadline and not all(pilots.connected(node) for node in pilots.held):
            await asyncio.sleep(0.02)
        for node in [n for n in pilots.held if not pilots.connected(n)]:
            self.nodes.release.drop(node)
        return frozenset(pilots.held)
