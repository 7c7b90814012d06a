"""Answers callers on trainers and nodes: implements `api.service.Service`.

Who may know what is decided here. Callers see and end trainers of their own, admins those of everybody.
Other users' trainers are reported as not found; only that their nodes are in use shows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from bftrainer import __version__
from bftrainer.api.answers import Answer, Answers
from bftrainer.api.callers import NOBODY, Caller, NotAllowedError
from bftrainer.api.listing import encoded, joined
from bftrainer.daemon.answers.exposition import Exposition
from bftrainer.daemon.answers.feed import LiveFeed
from bftrainer.daemon.answers.history import StoredHistory
from bftrainer.daemon.answers.impact_data import ImpactData
from bftrainer.daemon.answers.predecessors import Predecessors
from bftrainer.daemon.answers.studies import StudyAnswers
from bftrainer.daemon.answers.submissions import Submissions
from bftrainer.daemon.answers.trainer_orders import TrainerOrders
from bftrainer.daemon.answers.trainers import Trainers, TrainersNow
from bftrainer.daemon.answers.views.impact import ImpactView, headroom_view
from bftrainer.daemon.answers.views.pool import StatusView, node_view, plan_view, with_trainers
from bftrainer.daemon.answers.views.rescales import rescales, rows_for
from bftrainer.daemon.answers.views.trainers import (
    DetailsView,
    SubmittedView,
    TrainerView,
    costs_view,
    gpu_note,
    scalability_view,
)
from bftrainer.daemon.lanes import Lanes
from bftrainer.daemon.orders import SiteOrders
from bftrainer.daemon.runner import Runner
from bftrainer.engine.pairs import words_of
from bftrainer.engine.queueing.waiting import why_queued
from bftrainer.messages.commands.daemon import NO_ADMIN, NOT_RUN_HERE
from bftrainer.model.machine import Node, NodeState, Operation
from bftrainer.model.reports import StoredTrainer
from bftrainer.model.trainer import Trainer
from bftrainer.nodes.headroom.reserve import Reserve
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.state import NodesState
from bftrainer.ports import Clock, Launcher, Store
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry

ORDERS = {"pause": Operation.PAUSED, "drain": Operation.DRAINING, "resume": Operation.RUNNING}
"""The words of the API for what admins may order."""

STUCK_S = 30.0
"""An event that takes longer than this will not end any more: solvers have time limits."""

SHOWN = 100
"""Running trainers in the status, at most; lists have all."""

EVERYBODY = Caller("", -1, admin=True)
"""Sees all trainers: for totals, which name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonService:
    """Reads the daemon's parts, and passes on what callers order.

    `connected` says whether a node's agent is, `devices` what its pilot has, `recovering` whether the engine
    does not run yet.
    """

    settings: LiveSettings
    clock: Clock
    store: Store
    known: Trainers
    trainer_orders: TrainerOrders
    history: StoredHistory
    impact_data: ImpactData
    studies: StudyAnswers
    feed: LiveFeed
    lanes: Lanes
    predecessors: Predecessors
    exposition: Exposition
    answers: Answers
    runner: Runner
    launcher: Launcher
    nodes: NodesState
    reserve: Reserve
    pilots: Pilots
    connected: Callable[[str], bool]
    devices: Callable[[str], str]
    orders: SiteOrders
    submissions: Submissions
    recovering: Callable[[], bool]
    telemetry: Telemetry
    started_at: float

    # orders

    async def submit(
        self, caller: Caller, text: str, name: str, base: str, resume: str | None
    ) -> SubmittedView:
        """Accept the spec `text`, of a file `name` in the folder `base`; with `resume`, it goes on from the
        checkpoints of the caller's trainer of this name or number.

        Raises:
            NotAllowedError: the caller's trainers are not run here.
            TooManyError, FullError: the caller, or all users together, have submitted too much.
            BftrainerError: the spec is wrong, an unfinished trainer of the caller has its name, or the one
                before cannot be gone on from.
        """
        if self.settings.current.mode == "site" and caller.uid in (0, os.geteuid()):
            raise NotAllowedError(NOT_RUN_HERE.say(user=caller.user))
        with self.submissions.place(caller):
            wanted = await self.submissions.read(caller, text, name, base)
            if resume is None:
                before = await self.predecessors.of_its_name(caller, wanted)
            else:
                wanted, before = await self.predecessors.resumed(caller, wanted, resume)
            id_ = await self.orders.submit(wanted, ahead=True)
            self.known.index.submitted(id_, wanted, self.clock.now())
        now = self.clock.now()
        note = why_queued(self.runner.state, id_, wanted, now)
        return {"id": id_, "name": wanted.name, "note": note, "earlier": before}

    async def cancel(self, caller: Caller, trainer: str) -> TrainerView:
        """See `Changing.cancel`."""
        return await self.trainer_orders.cancel(caller, trainer)

    async def prioritise(self, caller: Caller, trainer: str, to: float) -> TrainerView:
        """See `Changing.prioritise`."""
        return await self.trainer_orders.prioritise(caller, trainer, to)

    def administer(self, caller: Caller, order: str) -> StatusView:
        """Carry out an admin's order for the whole site, one of ORDERS.

        Raises:
            NotAllowedError: the caller is no admin.
        """
        if not caller.admin:
            raise NotAllowedError(NO_ADMIN.say(user=caller.user))
        self.telemetry.ordered(order, caller.user, uid=caller.uid)
        self.orders.administer(ORDERS[order])
        return self.status(caller)

    async def impact(self, caller: Caller, days: float) -> ImpactView:
        """See `Evidence.impact`."""
        return await self.impact_data.impact(caller, days)

    # trainers

    async def trainers(self, caller: Caller, ended: int, skip: int, after: int) -> Answer:
        """See `Trainers.listed`."""
        return await self.known.listed(caller, ended, skip, after)

    async def show(self, caller: Caller, trainer: str) -> DetailsView:
        """All that is known of a trainer, named by number or name.

        Raises:
            UnknownTrainerError: there is none that the caller may see.
            BftrainerError: several others' have this name.
        """
        read = self.lanes.store.run
        stored = await read(caller.user, lambda: self.known.find(caller, trainer))
        moment = self.known.moment([stored.summary])
        return await read(caller.user, lambda: self._details(stored, moment))

    def _details(self, stored: StoredTrainer, moment: TrainersNow) -> DetailsView:
        state, own = moment.state, stored.spec
        live = state.trainer(stored.id) or stored.engine
        asked = rows_for(own.n_max)
        # what is typical of others' trainers is nobody's business
        others = [t for t in state.active.values() if t.id != stored.id and t.spec.user == own.user]
        view, scalability = (
            self.known.view(stored.summary, moment, with_best=True),
            scalability_view(live, others, state.programs),
        )
        return {
            **view,
            "note": view["note"] or gpu_note(live, state, self.nodes.seen),
            "turns": words_of(live, state.active),
            "command": list(own.command),
            "n_min": own.n_min,
            "n_max": own.n_max,
            "sizes": list(own.sizes.listed),
            "multiple_of": own.sizes.multiple_of,
            "weight": own.weight,
            "priority": live.spec.priority,
            "workdir": own.folder or own.workdir,
            "log_dir": str(self.launcher.log_folder(stored.id, own)),
            "checkpoint_dir": str(self.launcher.checkpoint_folder(stored.id, own)),
            "scalability": scalability,
            "costs": costs_view(live, others, state.programs),
            "generation": live.generation,
            "failures": live.failures,
            "pauses": rescales(self.store.rows("pauses", asked, stored.id), asked),
        }

    async def rows(
        self, caller: Caller, what: str, limit: int, trainer: str | None, before: int | None
    ) -> Answer:
        """See `History.rows`."""
        return await self.history.rows(caller, what, limit, trainer, before)

    # the machine

    async def pool(self, caller: Caller) -> Answer:
        """Every node. Of other users' trainers the role on the node shows, not the name."""
        state, seen, records = self.runner.state, self.nodes.seen, self.pilots.records
        idle, held = state.pool, records.pilots.keys()
        why = self.nodes.reasons(details=caller.admin)
        up = {name: self.devices(name) for name in held | idle if self.connected(name)}
        had = dict(self.nodes.gpus.most)
        nodes = {name: Node(name=name, state=NodeState.BUSY) for name in idle} | {n.name: n for n in seen}

        def make() -> Answer:
            holders: dict[str, list[Trainer]] = {}
            for t in state.active.values():
                for node in t.nodes:
                    holders.setdefault(node, []).append(t)
            rows = (
                with_trainers(
                    node_view(
                        nodes[name],
                        records.nodes.get(name),
                        idle=name in idle,
                        why="" if name in idle else why.get(name, ""),
                        pilot="up" if name in up else "starting" if name in held else None,
                        devices=up.get(name, ""),
                        gpus_had=had.get(name, 0),
                    ),
                    holders.get(name, ()),
                    caller.may_see,
                )
                for name in sorted(nodes)
            )
            head = f'{{"size": {len(idle)}, "unit": "{state.settings.unit}", "nodes": '
            return Answer(head.encode() + joined(encoded(rows)) + b"}")

        return await self.lanes.memory.run(caller.user, make)

    def status(self, caller: Caller) -> StatusView:
        """Return the daemon's status: totals of all nodes, and the trainers that the caller may see."""
        running, left_out = self.known.running(caller, SHOWN)
        return {**self.totals(caller), "running": running, "running_left_out": left_out}

    def totals(self, caller: Caller) -> StatusView:
        """Return the status without single trainers."""
        state, plan = self.runner.state, self.runner.last_plan
        problems = self.telemetry.troubles.messages(details=caller.admin)
        return {
            "version": __version__,
            "pid": os.getpid(),
            "up_s": self.clock.now() - self.started_at,
            "state": self._state(problems),
            "operation": self.nodes.operation.value,
            "problems": problems,
            "unit": state.settings.unit,
            "pool": len(state.pool),
            "unused": len(state.pool) - state.held,
            "pilots": len(self.pilots.records.pilots),
            "headroom": headroom_view(self.settings.current, self.reserve),
            "trainers": self.known.counts(caller),
            "running": [],
            "running_left_out": 0,
            "last_plan": None if plan is None else plan_view(plan),
            "bounds_hit": [hits.text for hits in self.telemetry.bounds.last_hour()] if caller.admin else [],
            "settings": self.settings.current.model_dump(mode="json") if caller.admin else {},
        }

    async def metrics(self, caller: Caller) -> Answer:
        """Prometheus' text. Totals are everybody's; single trainers are those that the caller may see."""

        def moment() -> tuple[StatusView, Callable[[], list[TrainerView]]]:
            totals = self.totals(replace(caller, admin=False))
            totals["trainers"] = self.known.counts(EVERYBODY)
            return totals, self.known.holding(caller)

        return await self.exposition.answer(caller, moment)

    # probes

    def liveness_problems(self) -> list[str]:
        """Return why this process should be restarted; empty while it is alive."""
        stuck_s = self.runner.pulse.stuck_s
        return [f"one event has been in work for {stuck_s:.0f} s"] if stuck_s > STUCK_S else []

    def readiness_problems(self) -> list[str]:
        """Return why the daemon cannot do its work at the moment; empty while it can."""
        found = ["recovering: what runs is being taken over"] if self.recovering() else []
        return (
            found
            + self.liveness_problems()
            + self.telemetry.troubles.texts(details=NOBODY.admin, blocking=True)
        )

    def readiness_warnings(self) -> list[str]:
        """Return what is wrong, but does not keep the daemon from its work."""
        return self.telemetry.troubles.texts(details=NOBODY.admin, blocking=False)

    def _state(self, problems: list[str]) -> str:
        """In a word: degraded, recovering, paused, draining or ok."""
        if problems:
            return "degraded"
        if self.recovering():
            return "recovering"
        operation = self.nodes.operation
        return "ok" if operation is Operation.RUNNING else operation.value
