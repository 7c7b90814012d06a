"""What the daemon answers to its users: implements `api.server.Service`.

Who may know what is decided here: callers see and end trainers of their own, admins those of everybody.
Of others' trainers nothing shows but that their nodes are in use.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bftrainer import __version__
from bftrainer.api.callers import NOBODY, Caller, NotAllowedError
from bftrainer.api.errors import UnknownTrainerError
from bftrainer.errors import BftrainerError
from bftrainer.model.machine import Node, NodeState, Operation
from bftrainer.model.reports import StoredTrainer
from bftrainer.model.trainer import Observed, Scalability, Trainer
from bftrainer.performance import estimate as estimates
from bftrainer.performance import explain, observe
from bftrainer.performance.estimate import SharedObservations
from bftrainer.spec.parse import parse
from bftrainer.telemetry.metrics import render

if TYPE_CHECKING:
    from bftrainer.daemon.daemon import Daemon

ORDERS = {"pause": Operation.PAUSED, "drain": Operation.DRAINING, "resume": Operation.RUNNING}

STUCK_S = 30.0
"""An event that takes longer than this will not end any more: solvers have time limits."""


class DaemonService:
    """Reads the daemon's state and store, and passes on what users want."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def submit(self, caller: Caller, text: str, name: str, base: str) -> dict[str, Any]:
        if self._daemon.settings.mode == "site" and caller.uid in (0, os.geteuid()):
            raise NotAllowedError(f"trainers of {caller.user} are not run here; submit as yourself")
        if not Path(base).is_absolute():
            raise BftrainerError(f"base: {base!r}: give the whole path of the spec's folder")
        wanted = replace(parse(text, name, Path(base)), user=caller.user)
        id_ = await self._daemon.submit(wanted)
        return {"id": id_, "name": wanted.name}

    def trainers(self, caller: Caller) -> list[dict[str, Any]]:
        return [self._brief(t) for t in self._visible(caller)]

    def show(self, caller: Caller, trainer: str) -> dict[str, Any]:
        stored = self._find(caller, trainer)
        live = self._daemon.state.trainers.get(stored.id, stored.engine)
        state = self._daemon.state
        others = [t for t in state.active.values() if t.id != stored.id]
        own = stored.spec
        return {
            **self._brief(stored),
            "command": list(own.command),
            "n_min": own.n_min,
            "n_max": own.n_max,
            "weight": own.weight,
            "priority": own.priority,
            "workdir": own.workdir,
            "log_dir": str(self._daemon.launcher.log_folder(stored.id, own)),
            "checkpoint_dir": str(self._daemon.launcher.checkpoint_folder(stored.id, own)),
            "scalability": _scalability(live, others, state.programs),
            "costs": _costs(live, others, state.programs),
            "generation": live.generation,
            "failures": live.failures,
            "pauses": self._daemon.store.rows("pauses", 10, stored.id),
        }

    async def cancel(self, caller: Caller, trainer: str) -> dict[str, Any]:
        stored = self._find(caller, trainer)
        if not stored.status.final:
            self._daemon.telemetry.ordered("cancel", caller.user, trainer=stored.id, name=stored.spec.name)
            self._daemon.cancel(stored.id)
        return self._brief(stored)

    def administer(self, caller: Caller, order: str) -> dict[str, Any]:
        """Carry out an admin's order for the whole site, one of ORDERS."""
        if not caller.admin:
            raise NotAllowedError(f"{caller.user} is no admin here: the setting admins names who is")
        self._daemon.telemetry.ordered(order, caller.user, uid=caller.uid)
        self._daemon.administer(ORDERS[order])
        return self.status(caller)

    def pool(self, caller: Caller) -> dict[str, Any]:
        """Every node. That somebody else's trainer has it shows in its role, not whose and which."""
        daemon = self._daemon
        holder = {node: t for t in daemon.state.active.values() for node in t.nodes}
        seen = {node.name: node for node in daemon.nodes.seen}
        rows = []
        for node in sorted({*seen, *daemon.state.pool}):
            trainer = holder.get(node)
            ours = node in daemon.state.pool or node not in seen
            facts = seen.get(node) or Node(name=node, state=NodeState.BUSY)
            rows.append(
                {
                    "node": node,
                    "state": "idle" if node in daemon.state.pool else "busy",
                    "why": "" if ours else daemon.nodes.why_not(facts, whole=caller.admin),
                    "until": facts.until,
                    "pilot": "up"
                    if daemon.hub.connected(node)
                    else "starting"
                    if node in daemon.nodes.pilots.held
                    else None,
                    "trainer": trainer.spec.name if trainer and caller.may_see(trainer.spec.user) else None,
                    "role": None if trainer is None else "member" if node in trainer.members else "joining",
                    "partitions": list(facts.partitions),
                    "features": list(facts.features),
                    "gres": facts.gres,
                    "gpus": facts.gpus,
                }
            )
        return {"size": len(daemon.state.pool), "nodes": rows}

    def rows(self, caller: Caller, what: str, limit: int, trainer: str | None) -> list[dict[str, Any]]:
        id_ = None if trainer is None else self._find(caller, trainer).id
        return self._daemon.store.rows(what, limit, id_, None if caller.admin else caller.user)

    def status(self, caller: Caller) -> dict[str, Any]:
        """Totals of nodes are everybody's; trainers are those that the caller may see."""
        daemon = self._daemon
        trainers = self.trainers(caller)
        plan = daemon.last_plan
        problems = self._problems(caller) + self._fallback()
        return {
            "version": __version__,
            "pid": os.getpid(),
            "up_s": daemon.clock.now() - daemon.started_at,
            "state": self._state(problems),
            "operation": daemon.nodes.operation.value,
            "problems": problems,
            "pool": len(daemon.state.pool),
            "unused": len(daemon.state.pool) - sum(len(t.nodes) for t in daemon.state.active.values()),
            "pilots": len(daemon.nodes.pilots.held),
            "trainers": _counts(t["status"] for t in trainers),
            "running": [
                {key: t[key] for key in ("name", "members", "step", "samples", "work", "rate", "metrics")}
                for t in trainers
                if t["status"] == "running"
            ],
            "last_plan": None
            if plan is None
            else {
                "allocator": plan.allocator,
                "status": plan.status.value,
                "proven": plan.proven,
                "objective": plan.objective,
                "gap": plan.gap if plan.bound < float("inf") else None,
                "solve_ms": plan.solve_s * 1e3,
                "note": plan.note,
                "fallback": plan.fallback,
            },
            "settings": daemon.settings.model_dump(mode="json") if caller.admin else {},
        }

    def metrics(self, caller: Caller) -> bytes:
        """Totals are everybody's; single trainers are those that the caller may see."""
        counted = self._daemon.telemetry.metrics.registry
        every = [self._brief(t) for t in self._daemon.store.trainers()]
        totals = {**self.status(caller), "trainers": _counts(t["status"] for t in every)}
        return render(counted, totals, [t for t in every if caller.may_see(t["user"])])

    def liveness_problems(self) -> list[str]:
        """Why this process should be started anew."""
        stuck_s = self._daemon.pulse.stuck_s
        return [f"one event has been in work for {stuck_s:.0f} s"] if stuck_s > STUCK_S else []

    def readiness_problems(self) -> list[str]:
        """Why the daemon cannot do its work at the moment."""
        found = ["recovering: what runs is being taken over"] if self._daemon.recovering else []
        return found + self.liveness_problems() + self._problems(NOBODY)

    def _state(self, problems: list[str]) -> str:
        """In a word: degraded, recovering, paused, draining or ok."""
        if problems:
            return "degraded"
        if self._daemon.recovering:
            return "recovering"
        operation = self._daemon.nodes.operation
        return "ok" if operation is Operation.RUNNING else operation.value

    def _problems(self, caller: Caller) -> list[str]:
        daemon = self._daemon
        trouble = daemon.nodes.pilots.trouble
        if not caller.admin:  # whose pilot it was is nobody else's business
            trouble = trouble.partition(":")[0]
        return [text for text in (daemon.nodes.poll_status.trouble, daemon.health.store, trouble) if text]

    def _fallback(self) -> list[str]:
        """Why the last plan was not made as asked. The daemon decides all the same: it stays ready."""
        plan = self._daemon.last_plan
        return [f"{plan.allocator} makes the plans: {plan.fallback}"] if plan and plan.fallback else []

    def _brief(self, stored: StoredTrainer) -> dict[str, Any]:
        """A trainer's line in a list; what is newer in memory than in the store wins."""
        live = self._daemon.state.trainers.get(stored.id)
        progress = self._daemon.progress.get(stored.id)
        running = live is not None and bool(live.members)
        source: Any = progress or stored
        return {
            "id": stored.id,
            "name": stored.spec.name,
            "user": stored.spec.user,
            "status": live.status.value if live else stored.status.value,
            "reason": stored.reason,
            "nodes": sorted(live.nodes) if live else [],
            "members": list(live.members) if live else [],
            "workers": self._daemon.launcher.workers(stored.id),
            "step": source.step,
            "epoch": source.epoch,
            "samples": source.samples,
            "work": stored.spec.samples,
            "rate": source.rate if running else None,
            "metrics": dict(source.metrics),
            "submitted_at": stored.submitted_at,
            "ended_at": stored.ended_at,
        }

    def _visible(self, caller: Caller) -> list[StoredTrainer]:
        return [t for t in self._daemon.store.trainers() if caller.may_see(t.spec.user)]

    def _find(self, caller: Caller, trainer: str) -> StoredTrainer:
        """By number, or by name: the latest of that name, of the caller's own if there is one.

        Raises:
            UnknownTrainerError: there is none that the caller may see.
            BftrainerError: several others' have this name.
        """
        found = [t for t in self._visible(caller) if trainer in (t.spec.name, str(t.id))]
        found = [t for t in found if t.spec.user == caller.user] or found
        if not found:
            raise UnknownTrainerError(f"no trainer {trainer!r}; bftrainer list shows those that there are")
        if len({t.spec.user for t in found}) > 1:
            which = ", ".join(f"{t.id} ({t.spec.user})" for t in found[-10:])
            raise BftrainerError(f"several users have a trainer {trainer!r}; name it by its number: {which}")
        return found[-1]


def _counts(words: Iterable[str]) -> dict[str, int]:
    """How often each occurs, in order of first occurrence."""
    return dict(Counter(words))


def _scalability(trainer: Trainer, others: list[Trainer], programs: SharedObservations) -> dict[str, Any]:
    """What the speed on each size is taken to be, how sure that is, and what the next plan may ask for."""
    own, all_ = trainer.spec, (trainer, *others)
    estimated = estimates.estimates_of(all_, programs)[0]
    learning = own.scalability is Scalability.AUTO
    typical = estimates.typical_speed(all_, programs)
    rows = []
    for name, points in estimates.given_curves(own).items():
        seen = observe.sizes(trainer.observed, name) if learning else ()
        if points or name is None:
            found = explain.size_estimates(seen, points, own.n_min, own.n_max, typical)
            rows += [{"node_class": name, **asdict(estimate)} for estimate in found]
    return {
        "mode": own.scalability.value,
        "may_ask_for": max(estimate.n_max for estimate in estimated.values()),
        "points": [list(point) for point in estimated[None].points],
        "sizes": rows,
    }


def _costs(trainer: Trainer, others: list[Trainer], programs: SharedObservations) -> dict[str, Any]:
    """What rescaling is taken to cost, and the measurements behind it."""
    own, seen = trainer.spec, trainer.observed
    estimated = estimates.costs_of((trainer, *others), programs)[0]
    otherwise = "given" if own.costs else "assumed"
    learning = own.costs is None or own.scalability is Scalability.AUTO

    def cost(value: float, observed: Observed) -> dict[str, Any]:
        measured = learning and observed.count > 0
        return {
            "seconds": value,
            "error_s": observe.error(observed) * median(observed.recent) if measured else None,
            "count": observed.count,
            "source": "measured" if measured else otherwise,
        }

    return {
        "up": {
            "stall": cost(estimated.up.stall_s, seen.up_stall_s),
            "init": cost(estimated.up.init_s, seen.up_init_s),
        },
        "down": {"stall": cost(estimated.down.stall_s, seen.down_stall_s)},
    }
