"""What the daemon answers to its callers: implements `api.service.Service`.

Who may know what is decided here. Callers see and end trainers of their own, admins those of everybody.
Other users' trainers are reported as not found; only that their nodes are in use shows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from bftrainer import __version__
from bftrainer.api.callers import NOBODY, Caller, NotAllowedError
from bftrainer.daemon.orders import Orders
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.submissions import Submissions
from bftrainer.daemon.trainers import Trainers
from bftrainer.daemon.views import (
    DetailsView,
    NodeView,
    PoolView,
    StatusView,
    SubmittedView,
    TrainerView,
    costs_view,
    node_view,
    plan_view,
    running_view,
    scalability_view,
)
from bftrainer.engine.places import why_never
from bftrainer.model.machine import Node, NodeState, Operation
from bftrainer.model.reports import Row
from bftrainer.model.trainer import Trainer
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.state import NodesState
from bftrainer.ports import Clock, Launcher, Store
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.metrics import render
from bftrainer.telemetry.telemetry import Telemetry

ORDERS = {"pause": Operation.PAUSED, "drain": Operation.DRAINING, "resume": Operation.RUNNING}
"""The words of the API for what admins may order."""

STUCK_S = 30.0
"""An event that takes longer than this will not end any more: solvers have time limits."""

EVERYBODY = Caller("", -1, admin=True)
"""Sees all trainers: for totals, which name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonService:
    """Reads the daemon's parts, and passes on what callers order.

    `connected` says whether a node's agent is, `recovering` whether the engine does not run yet.
    """

    settings: LiveSettings
    clock: Clock
    store: Store
    known: Trainers
    runner: Runner
    launcher: Launcher
    nodes: NodesState
    pilots: Pilots
    connected: Callable[[str], bool]
    orders: Orders
    submissions: Submissions
    recovering: Callable[[], bool]
    telemetry: Telemetry
    started_at: float

    # orders

    async def submit(self, caller: Caller, text: str, name: str, base: str) -> SubmittedView:
        """Accept the spec `text`, of a file `name` in the folder `base`.

        Raises:
            NotAllowedError: the caller's trainers are not run here.
            TooManyError, FullError: the caller, or all users together, have submitted too much.
            BftrainerError: the spec is wrong, or an unfinished trainer of the caller has its name.
        """
        if self.settings.current.mode == "site" and caller.uid in (0, os.geteuid()):
            raise NotAllowedError(f"trainers of {caller.user} are not run here; submit as yourself")
        wanted = await self.submissions.read(caller, text, name, base)
        id_ = await self.orders.submit(wanted)
        self.submissions.stored(id_, wanted.user)
        note = why_never(wanted, self.settings.current.engine, self.runner.state.machine)
        return {"id": id_, "name": wanted.name, "note": note}

    async def cancel(self, caller: Caller, trainer: str) -> TrainerView:
        """End a trainer; no error if it has ended already. Raises as `show` does."""
        stored = self.known.find(caller, trainer)
        if not stored.status.final:
            self.telemetry.ordered("cancel", caller.user, trainer=stored.id, name=stored.spec.name)
            self.orders.cancel(stored.id)
        return self.known.view(stored.summary)

    def administer(self, caller: Caller, order: str) -> StatusView:
        """Carry out an admin's order for the whole site, one of ORDERS.

        Raises:
            NotAllowedError: the caller is no admin.
        """
        if not caller.admin:
            raise NotAllowedError(f"{caller.user} is no admin here: the setting admins names who is")
        self.telemetry.ordered(order, caller.user, uid=caller.uid)
        self.orders.administer(ORDERS[order])
        return self.status(caller)

    # trainers

    def trainers(self, caller: Caller, ended: int, skip: int) -> tuple[list[TrainerView], int]:
        """The trainers that the caller may see, in order of arrival: all that have not ended, and `ended` of
        those that ended last. And how many more have ended.

        With `skip`, only trainers that ended: those after the `skip` that ended last.
        """
        unfinished = [] if skip else self.known.unfinished(caller)
        found = self.known.ended(caller, ended, skip)
        left_out = max(0, self.known.count_ended(caller) - skip - len(found))
        return sorted(unfinished + found, key=lambda t: t["id"]), left_out

    def show(self, caller: Caller, trainer: str) -> DetailsView:
        """All that is known of a trainer, named by number or name.

        Raises:
            UnknownTrainerError: there is none that the caller may see.
            BftrainerError: several others' have this name.
        """
        stored = self.known.find(caller, trainer)
        state, own = self.runner.state, stored.spec
        live = state.trainer(stored.id) or stored.engine
        # what is typical of others' trainers is nobody's business
        others = [t for t in state.active.values() if t.id != stored.id and t.spec.user == own.user]
        return {
            **self.known.view(stored.summary),
            "command": list(own.command),
            "n_min": own.n_min,
            "n_max": own.n_max,
            "weight": own.weight,
            "priority": own.priority,
            "workdir": own.workdir,
            "log_dir": str(self.launcher.log_folder(stored.id, own)),
            "checkpoint_dir": str(self.launcher.checkpoint_folder(stored.id, own)),
            "scalability": scalability_view(live, others, state.programs),
            "costs": costs_view(live, others, state.programs),
            "generation": live.generation,
            "failures": live.failures,
            "pauses": self.store.rows("pauses", 10, stored.id),
        }

    def rows(self, caller: Caller, what: str, limit: int, trainer: str | None) -> list[Row]:
        """The last `limit` rows of "events", "pauses" or "reports" that the caller may see, oldest first;
        with `trainer` those of one trainer. Raises as `show` does."""
        id_ = None if trainer is None else self.known.find(caller, trainer).id
        return self.store.rows(what, limit, id_, None if caller.admin else caller.user)

    # the machine

    def pool(self, caller: Caller) -> PoolView:
        """Every node. Of other users' trainers the role on the node shows, not the name."""
        pool = self.runner.state.pool
        seen = {node.name: node for node in self.nodes.seen}
        holder = {node: t for t in self.runner.trainers() for node in t.nodes}
        rows = [self._node(caller, name, seen.get(name), holder.get(name)) for name in sorted({*seen, *pool})]
        return {"size": len(pool), "nodes": rows}

    def _node(self, caller: Caller, name: str, seen: Node | None, holder: Trainer | None) -> NodeView:
        info = seen or Node(name=name, state=NodeState.BUSY)
        in_pool = name in self.runner.state.pool
        starting = "starting" if name in self.pilots.held else None
        view = node_view(
            info,
            idle=in_pool,
            why="" if in_pool or seen is None else self.nodes.why_not(info, details=caller.admin),
            pilot="up" if self.connected(name) else starting,
        )
        if holder is not None:
            view["role"] = "member" if name in holder.members else "joining"
            view["trainer"] = holder.spec.name if caller.may_see(holder.spec.user) else None
        return view

    def status(self, caller: Caller) -> StatusView:
        """How the daemon is. Totals of nodes are everybody's; trainers are those that the caller may see."""
        return self._status(caller, self.known.unfinished(caller))

    def _status(self, caller: Caller, unfinished: list[TrainerView]) -> StatusView:
        """The status; `unfinished` are the caller's trainers that have not ended."""
        state, plan = self.runner.state, self.runner.last_plan
        problems = self.telemetry.troubles.texts(details=caller.admin)
        return {
            "version": __version__,
            "pid": os.getpid(),
            "up_s": self.clock.now() - self.started_at,
            "state": self._state(problems),
            "operation": self.nodes.operation.value,
            "problems": problems,
            "pool": len(state.pool),
            "unused": len(state.pool) - sum(len(t.nodes) for t in state.active.values()),
            "pilots": len(self.pilots.held),
            "trainers": self.known.counts(caller, unfinished),
            "running": [running_view(t) for t in unfinished if t["status"] == "running"],
            "last_plan": None if plan is None else plan_view(plan),
            "bounds_hit": [hits.text for hits in self.telemetry.bounds.last_hour()] if caller.admin else [],
            "settings": self.settings.current.model_dump(mode="json") if caller.admin else {},
        }

    def metrics(self, caller: Caller) -> bytes:
        """Prometheus' text. Totals are everybody's; single trainers are those that the caller may see."""
        every = self.known.unfinished(EVERYBODY)
        seen = [t for t in every if caller.may_see(t["user"])]
        totals = self._status(caller, seen)
        totals["trainers"] = self.known.counts(EVERYBODY, every)
        return render(self.telemetry.metrics.registry, totals, seen)

    # probes

    def liveness_problems(self) -> list[str]:
        """Why this process should be started anew; empty while it is alive."""
        stuck_s = self.runner.pulse.stuck_s
        return [f"one event has been in work for {stuck_s:.0f} s"] if stuck_s > STUCK_S else []

    def readiness_problems(self) -> list[str]:
        """Why the daemon cannot do its work at the moment; empty while it can."""
        found = ["recovering: what runs is being taken over"] if self.recovering() else []
        return (
            found
            + self.liveness_problems()
            + self.telemetry.troubles.texts(details=NOBODY.admin, blocking=True)
        )

    def readiness_warnings(self) -> list[str]:
        """What is wrong, but does not keep the daemon from its work."""
        return self.telemetry.troubles.texts(details=NOBODY.admin, blocking=False)

    def _state(self, problems: list[str]) -> str:
        """In a word: degraded, recovering, paused, draining or ok."""
        if problems:
            return "degraded"
        if self.recovering():
            return "recovering"
        operation = self.nodes.operation
        return "ok" if operation is Operation.RUNNING else operation.value
