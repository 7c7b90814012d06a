"""The Horovod launcher: for scripts that are written for Elastic Horovod.

Every trainer has a driver, a process beside the daemon (`elastic.horovod.driver`) that stands in for
Horovod's: it lets the workers of the published membership find each other. New workers wait, warm, before
that (`gated`), and their scripts run as far as `elastic.attach()` while the members train on.

What cannot be repaired while the scripts run goes through their checkpoint: no worker stays that has the
state, or a worker dies in the moment when all connect to each other.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

from bftrainer.launch import messages
from bftrainer.launch.horovod.drivers import Drivers
from bftrainer.launch.horovod.trainer import HorovodTrainer, host_of
from bftrainer.launch.job import WorkerView
from bftrainer.launch.launcher import FOLLOWERS_GRACE_S, AgentLauncher
from bftrainer.model.actions import Regroup
from bftrainer.model.events import Resync
from bftrainer.model.reports import Message, PauseKind
from bftrainer.model.trainer import TrainerSpec
from bftrainer.wire.messages import from_agent as said
from bftrainer.wire.messages.from_agent import Report, Running
from bftrainer.wire.phases import Phase

MOST_ASKING = 4096
"""Asking hosts to remember, more than any machine has: names can be made up."""


class HorovodLauncher(AgentLauncher[HorovodTrainer]):
    """See `AgentLauncher`. A worker trains in the process that `view.run` let run; `joined` after a step."""

    gated = True
    trainer_type = HorovodTrainer

    def __init__(self, *args: Any, drivers: Drivers, **options: Any) -> None:
        super().__init__(*args, **options)
        self._drivers = drivers

    def add(self, trainer: int, spec: TrainerSpec, **stored: Any) -> None:
        """See `AgentLauncher.add`. A trainer with members has a driver already, which is found again."""
        super().add(trainer, spec, **stored)
        if self.known[trainer].members:
            self._open(trainer)

    def _forgotten(self, trainer: int) -> None:
        self._drivers.end(trainer)

    def close(self) -> None:
        """End all drivers."""
        self._drivers.close()

    # from one membership to the next

    def _send_start(self, launched: HorovodTrainer, node: str) -> None:
        self._open(launched.id)
        super()._send_start(launched, node)

    def _open(self, trainer: int) -> None:
        self._drivers.open(trainer, lambda message: self._heard_driver(trainer, message))

    def _carry_out(self, launched: HorovodTrainer, action: Regroup) -> None:
        there = tuple(node for node in action.members if node in launched.workers)
        launched.pending = replace(action, members=there)
        self._advance(launched)

    def _advance(self, launched: HorovodTrainer) -> None:
        """The next step towards what is pending: workers that take the state along end first, then the driver
        leads the members."""
        action = launched.pending
        if action is None:
            return
        members = [node for node in action.members if node in launched.workers]
        leaving = [node for node in action.leaving if node in launched.workers]
        if launched.finished:  # rank 0 is let end, but for nodes that are wanted
            for node in leaving:
                self._link.send(node, messages.regroup(action, action.members, self._grace_s))
            return
        if leaving and not launched.has_state(members):
            self._tell_world(launched, action.generation, [])
            self._halt(launched, leaving)
            return
        if launched.broken and not launched.has_state(members):
            stranded = [node for node in members if node in launched.present()]
            self._kill(launched, stranded, "no worker is left that has the state")
            members = [node for node in members if node not in stranded]
        if not launched.port or not members:
            return
        launched.pending = None
        for node in leaving:  # the worker goes by itself when it finds no place; its agent sees to it
            self._link.send(node, messages.regroup(action, action.members, self._grace_s))
        for node in members:
            self._let_run(launched, action, node)
        self._tell_world(launched, action.generation, members)

    def _tell_world(self, launched: HorovodTrainer, generation: int, members: list[str]) -> None:
        views = [launched.workers[node] for node in members]
        hosts = [host_of(node, view) for node, view in zip(members, views, strict=True)]
        counts = [view.workers for view in views]
        several = {"slots": counts} if any(count > 1 for count in counts) else {}
        world = {"type": "world", "generation": generation, "hosts": hosts, **several}
        self._drivers.tell(launched.id, world)

    def _have_met(self, launched: HorovodTrainer) -> bool:
        return bool(launched.formed or launched.confirmed)

    def _let_run(self, launched: HorovodTrainer, action: Regroup, node: str) -> None:
        view = launched.workers[node]
        if not view.run:
            view.run, view.phase = action.generation, Phase.JOINING
            env = launched.environment(node, self._drivers.address)
            self._link.send(node, messages.go(launched.id, view, env))
            reason = "did not reach elastic.attach() and its first step"
            self._deadlines.starts(launched, node, reason)

    def _halt(self, launched: HorovodTrainer, nodes: list[str]) -> None:
        """Have workers end: rank 0 first, since it writes the state down, then the others."""
        leader = launched.ranks[0] if launched.ranks else ""
        for node in [leader] if leader in nodes else nodes:
            if node not in launched.halting:
                launched.halting.add(node)
                grace_s = self._grace_s if node == leader else FOLLOWERS_GRACE_S
                first = node == leader and launched.workers[node].workers > 1
                self._link.send(node, messages.stop(launched.id, grace_s, leader_first=first))

    def _kill(self, launched: HorovodTrainer, nodes: list[str], reason: str) -> None:
        for node in nodes:
            self._link.send(node, messages.kill(launched.id, reason))

    # what the driver says

    def _heard_driver(self, trainer: int, message: Message) -> None:
        launched = self.known[trainer]
        match message["type"]:
            case "up":
                launched.port, launched.driver_failure = message["port"], ""
                self._advance(launched)
            case "formed":
                launched.form(message["generation"], tuple(message["hosts"]))
                early, launched.early = launched.early, None
                if early is not None:
                    self._resumed(launched, *early)
            case "asking":
                if len(launched.asking) < MOST_ASKING:  # anybody on the network may ask
                    launched.asking.add(message["host"])
                self._disown(launched, blame=True)
            case "torn" | "lost" if launched.finished:
                pass  # nobody needs to meet any more
            case "torn":
                launched.broken = True
                self._kill(launched, launched.present(), "a peer died while they met")
            case "lost":
                launched.port = 0
                self._halt(launched, [node for node, view in launched.workers.items() if view.run])
            case "failed":
                launched.driver_failure = message["reason"]
                self._kill(launched, list(launched.workers), launched.driver_failure)

    # what agents tell

    def _caught_up(self, launched: HorovodTrainer, node: str, found: Running) -> None:
        super()._caught_up(launched, node, found)
        view = launched.workers[node]
        if view.generation == found.generation and found.run != view.run:
            view.run = found.run  # it was never told to go
            self._emit(Resync(time=self._clock(), trainer=launched.id, generation=launched.published))

    def reported(self, node: str, report: Report) -> None:
        """See `AgentLauncher.reported`. A worker is one process: its start tells it from others, even if it
        died before it was let run."""
        launched = self.known.get(report.trainer)
        view = launched.workers.get(node) if launched else None
        super().reported(node, replace(report, run=view.run) if view else report)

    def agent_down(self, node: str, *, blame: bool = False, waiting: bool = True) -> None:
        """See `AgentLauncher.agent_down`."""
        for launched, view in self.known.at(node):
            if waiting or view.sent:
                self._missed(launched, node, view)
        super().agent_down(node, blame=blame, waiting=waiting)

    def _heard(self, launched: HorovodTrainer, node: str, view: WorkerView, what: said.FromWorker) -> None:
        if not isinstance(what, said.Ready):
            what = what.model_copy(update={"generation": launched.heard_in})
        if isinstance(what, said.Resumed):
            self._resumed(launched, node, what)
        elif not isinstance(what, said.Progress | said.Finished) or node in launched.ranks[:1]:
            if isinstance(what, said.Standing) and what.at is not None:
                launched.last_step_at = what.at
            super()._heard(launched, node, view, what)

    def _resumed(self, launched: HorovodTrainer, node: str, resumed: said.Resumed) -> None:
        """Rank 0 has taken its first step with all others: from here on, everybody has the state."""
        if node not in launched.ranks[:1] or resumed.size != len(launched.ranks):
            launched.early = (node, resumed)
            return
        before = launched.last_step_at
        fresh = not launched.has_state([n for n in launched.ranks if n in launched.workers])
        kind = PauseKind.RESTART if before is None or fresh else launched.kind(launched.formed)
        launched.last_step_at = resumed.at
        launched.train()
        self._reports.paused(
            launched,
            node,
            kind,
            generation=launched.formed,
            size=resumed.size,
            step=resumed.step,
            pause_s=0.0 if before is None else max(0.0, resumed.at - before),
        )

    def _exited(self, launched: HorovodTrainer, node: str, view: WorkerView, end: said.Exited) -> None:
        if view.run and end.last is not None:
            last = end.last.model_copy(update={"generation": launched.heard_in})
            end = end.model_copy(update={"last": last})
        self._tell_gone(launched, node, view)
        if view.phase == Phase.LEAVING or launched.finished:
            super()._exited(launched, node, view, end)
        elif node in launched.halting:
            self._gone(launched, node, "its driver was lost", blame=False)
            self._halt(launched, [n for n, other in launched.workers.items() if other.run])
        elif launched.driver_failure:
            self._gone(launched, node, launched.driver_failure, blame=True)
        elif end.code == 0 and not isinstance(end.last, said.Finished) and launched.follows(node):
            launched.done[node] = launched.drop(node)  # whether the work is done is rank 0's to say
            launched.broken = True
            self._reports.check_finished(launched)
        elif -end.code == signal.SIGABRT and launched.broken:
            self._gone(launched, node, "Horovod gave up after a loss", blame=False)
        else:
            super()._exited(launched, node, view, end)

    def _gone(self, launched: HorovodTrainer, node: str, reason: str, *, blame: bool) -> None:
        self._missed(launched, node, launched.workers[node])
        super()._gone(launched, node, reason, blame=blame)
        self._disown(launched, blame=blame)
        if not launched.finished:
            self._vacated(launched)

    def _succeed(self, launched: HorovodTrainer, node: str) -> None:
        super()._succeed(launched, node)
        self._deadlines.parted(launched)

    def _disown(self, launched: HorovodTrainer, *, blame: bool) -> None:
        """Workers that ended with exit code 0 are lost if rank 0 did not say that the work was done, and no
        longer can."""
        while launched.done and not launched.finished and not launched.leads():
            node, view = launched.done.popitem()
            launched.put(node, view)
            super()._gone(launched, node, launched.fell_short(), blame=blame)

    def _missed(self, launched: HorovodTrainer, node: str, view: WorkerView) -> None:
        """A worker is gone without having been told to."""
        launched.miss(node)
        self._tell_gone(launched, node, view)

    def _tell_gone(self, launched: HorovodTrainer, node: str, view: WorkerView) -> None:
        self._drivers.tell(launched.id, {"type": "gone", "host": host_of(node, view)})

    def _vacated(self, launched: HorovodTrainer) -> None:
        super()._vacated(launched)
        launched.halting &= launched.workers.keys()
        if launched.succeeded:
            launched.done.clear()
        if launched.workers:
            self._advance(launched)
        else:
            self._drivers.end(launched.id)
            launched.disband()
