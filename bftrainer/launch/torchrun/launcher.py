"""The torchrun launcher: for scripts that only know checkpoint and restart.

Workers get the environment that torchrun gives (RANK, WORLD_SIZE, MASTER_ADDR, ...), so scripts written for
it run as they are. Every change of membership ends the processes of one run and starts those of the next; a
run's number is the generation of its membership. torchrun's own agents and their rendezvous are not needed:
bftrainer's agents start the processes, and the daemon knows the members already.

To end a run, all ranks get SIGTERM, as from torchrun, and have their grace time to write a checkpoint. A
script that has called `elastic.attach` is told through rank 0 alone, while the others still take part in its
steps: so all of them end after the same step. Then the others stop. A spec's `stop_signal` decides otherwise.
When all have ended, the next run begins; new nodes are warm by then (`gated`).
If a process dies, its run ends, and the next begins without it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from bftrainer.launch import messages
from bftrainer.launch.job import PEER_GONE, WORK_DONE, LaunchedTrainer, WorkerView
from bftrainer.launch.launcher import FOLLOWERS_GRACE_S, AgentLauncher
from bftrainer.launch.torchrun.runs import Meetings, Runs
from bftrainer.launch.torchrun.stores import Stores
from bftrainer.messages.diagnostic import Diagnostic
from bftrainer.messages.ends import TELLS_NOTHING, UNTOLD_RANKS
from bftrainer.model.actions import Regroup
from bftrainer.model.events import Lasted, Resync
from bftrainer.model.reports import PauseKind
from bftrainer.model.trainer import TrainerSpec
from bftrainer.wire.messages import from_agent as said
from bftrainer.wire.messages.from_agent import Report, Running
from bftrainer.wire.phases import ENDED, Phase

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TorchrunTrainer(LaunchedTrainer):
    """A trainer as the torchrun launcher knows it."""

    untold_samples: ClassVar[Diagnostic] = UNTOLD_RANKS

    pending: Regroup | None = None  # to run as soon as the run before has ended
    port: int = 0  # of the pending run's store, once it is there
    leader: str = ""  # the node of rank 0 in the last run
    halting: set[str] = field(default_factory=set)  # nodes whose processes have been told to stop
    last_step_at: float | None = None  # as far as has been said
    attached: bool = False  # its script has called `elastic.attach`
    led: bool = False  # with no amount of work: rank 0 has ended with exit code 0, and the others are let end
    runs: Runs = field(default_factory=Runs)

    def lose(self, node: str) -> WorkerView:
        """See `LaunchedTrainer.lose`. Rank 0 may have ended with exit code 0 because of it: a script that
        catches every exception ends so where its peers are gone."""
        view = LaunchedTrainer.lose(self, node)  # a dataclass with slots has no super() here
        if view.run and view.phase != Phase.LEAVING:
            self.led = False
        return view

    def has_left_loop(self, node: str, view: WorkerView, phase: Phase, reason: str) -> bool:
        """See `LaunchedTrainer.has_left_loop`. Also one that has said so, and was then told to end, as rank 0
        had; or one that has failed, and misses nobody, while rank 0, whose work is done, had yet to end."""
        if phase == Phase.LEAVING or self.succeeded:
            return view.phase == Phase.FINISHED and (phase != Phase.LEAVING or node in self.halting)
        is_late = bool(self.finisher) and not any(words in reason for words in PEER_GONE)
        return Phase.FINISHED in (phase, view.phase) or is_late

    def note_of_runs(self, now: float) -> str:
        """Note to its user on its runs so far; empty if there is none."""
        told = self.runs.note(now, self.spec.checkpoint_interval_s, attached=self.attached)
        if told or self.has_told or self.spec.samples is None or not self.runs.is_long(now):
            return told
        return TELLS_NOTHING.say(samples=self.spec.samples)

    @property
    def has_told(self) -> bool:
        """See `LaunchedTrainer.has_told`."""
        return self.attached

    def why_no_other(self, now: float) -> str:
        """Its last run is over: reason why no other begins; empty if one does."""
        return self.runs.ended(now, self.furthest, self.spec.checkpoint_interval_s, attached=self.attached)

    @property
    def leader_first(self) -> bool:
        """True if rank 0 alone is told to stop, and the others when it has ended."""
        return self.spec.stop_signal == "rank_0" or (self.attached and self.spec.stop_signal != "all")

    @property
    def is_ending(self) -> bool:
        """True if rank 0 has done its work: no other run begins, unless a process fails."""
        return self.finished or self.led


class TorchrunLauncher(AgentLauncher[TorchrunTrainer]):
    """See `AgentLauncher`. A worker's process takes part in run `view.run`; 0: it waits, warm or ended."""

    gated = True
    trainer_type = TorchrunTrainer

    def __init__(self, *args: Any, stores: Stores, **options: Any) -> None:
        super().__init__(*args, **options)
        self._stores = stores
        self._meetings = Meetings(stores, self._deadlines.limits.later)

    def add(self, trainer: int, spec: TrainerSpec, **stored: Any) -> None:
        """See `AgentLauncher.add`."""
        super().add(trainer, spec, **stored)
        launched = self.known[trainer]
        launched.leader = launched.members[0] if launched.members else ""
        launched.attached = launched.samples > 0  # only attached scripts report progress
        self._stores.prepare()

    def note(self, trainer: int) -> str:
        """See `AgentLauncher.note`. Of a script that does not attach, only its runs are known."""
        launched = self.known.get(trainer)
        return super().note(trainer) or (launched.note_of_runs(self._clock()) if launched else "")

    def _forgotten(self, trainer: int) -> None:
        self._stores.end(trainer)

    def close(self) -> None:
        """End the process that hosts the stores."""
        self._stores.close()

    # from one run to the next

    def _carry_out(self, launched: TorchrunTrainer, action: Regroup) -> None:
        launched.pending, launched.port = (action, 0) if action.members else (None, 0)
        if action.members:
            self._open_store(launched, action)
        self._advance(launched)

    def _dismiss(self, launched: TorchrunTrainer, node: str) -> None:
        view = launched.workers[node]
        if view.phase not in ENDED and not view.run:  # it waits, warm, for a run that is never to begin
            self._stop(launched, node)
        else:
            super()._dismiss(launched, node)

    def _open_store(self, launched: TorchrunTrainer, action: Regroup) -> None:
        self._stores.open(
            launched.id,
            action.generation,
            lambda port: self._opened(launched, action, port),
            lambda reason: self._store_lost(launched, action, reason),
        )

    def _store_lost(self, launched: TorchrunTrainer, action: Regroup, reason: str) -> None:
        """The store of a run has ended. Processes that take steps together do not need it; others cannot
        meet, and restart without blame."""
        log.warning("trainer %d: the store of run %d is lost: %s", launched.id, action.generation, reason)
        if launched.pending is action:
            launched.port = 0
            self._open_store(launched, action)
        elif launched.published == action.generation > launched.confirmed:
            self._emit(Resync(time=self._clock(), trainer=launched.id, generation=action.generation))

    def _opened(self, launched: TorchrunTrainer, action: Regroup, port: int) -> None:
        """The store of a run is there, though the run may have been overtaken."""
        if launched.pending is action:
            launched.port = port
            self._advance(launched)

    def _advance(self, launched: TorchrunTrainer) -> None:
        """The next step towards what is pending: the ranks stop, rank 0 before the others if it alone is to
        be told, then the run begins."""
        running = [node for node, view in launched.workers.items() if view.run]
        if launched.is_ending and not launched.succeeded:  # all are let end, but for nodes that are wanted
            for node in running:
                if launched.workers[node].phase == Phase.LEAVING:
                    grace_s = self._grace_s if node == launched.finisher else FOLLOWERS_GRACE_S
                    self._halt(launched, node, grace_s)
        elif launched.leader in running and launched.leader_first:
            self._halt(launched, launched.leader, self._grace_s)
        elif running:
            self._halt_all(launched, FOLLOWERS_GRACE_S if launched.leader_first else self._grace_s)
        elif launched.pending is not None and launched.port:
            self._begin(launched, launched.pending)

    def _halt_all(self, launched: TorchrunTrainer, grace_s: float = FOLLOWERS_GRACE_S) -> None:
        for node, view in launched.workers.items():
            if view.run:
                self._halt(launched, node, grace_s)

    def _halt(self, launched: TorchrunTrainer, node: str, grace_s: float) -> None:
        if node not in launched.halting:
            launched.halting.add(node)
            first = node == launched.leader and launched.leader_first and launched.workers[node].workers > 1
            self._link.send(node, messages.stop(launched.id, grace_s, leader_first=first))

    def _begin(self, launched: TorchrunTrainer, run: Regroup) -> None:
        if why := launched.why_no_other(self._clock()):
            launched.pending = None
            self._reports.failed(launched, why)
            return
        launched.pending, launched.leader, launched.halting, launched.led = None, run.members[0], set(), False
        launched.failure = ""  # what failed after the loop of the run before runs again
        there = {node: launched.workers[node] for node in run.members if node in launched.workers}
        for node, view in there.items():  # one that is lost meanwhile is not in the next membership
            if view.phase != Phase.READY:  # its process has ended with the run before
                self._send_start(launched, node)
        counts = [there[node].workers if node in there else 1 for node in run.members]
        for group, node in enumerate(run.members):
            if node not in there:
                continue
            view = there[node]
            view.run = view.joined = run.generation
            view.phase = Phase.MEMBER
            env = environment(
                name=launched.spec.name,
                run=run.generation,
                group=group,
                counts=counts,
                address=self._stores.address,
                port=launched.port,
            )
            self._link.send(node, messages.go(launched.id, view, *env))
        launched.runs.begin(run.generation, sum(counts), self._clock())
        self._meetings.watch(launched.id, launched.runs)
        self._tell_when_it_has_lasted(launched, run.generation)

    def _tell_when_it_has_lasted(self, launched: TorchrunTrainer, generation: int) -> None:
        """Have the engine decide again once a run has lasted the time between its script's checkpoints."""

        def tell() -> None:
            if self.known.get(launched.id) is launched and launched.published == generation:
                self._emit(Lasted(time=self._clock(), trainer=launched.id, generation=generation))

        if interval_s := launched.spec.checkpoint_interval_s:
            self._deadlines.later(launched.id, "", "last", interval_s, tell)

    # what agents tell

    def _caught_up(self, launched: TorchrunTrainer, node: str, found: Running) -> None:
        super()._caught_up(launched, node, found)
        view = launched.workers[node]
        if view.generation == found.generation and found.run != view.run:
            self._emit(Resync(time=self._clock(), trainer=launched.id, generation=launched.published))

    def reported(self, node: str, report: Report) -> None:
        """See `AgentLauncher.reported`. A process that ends as run 0 was to begin the present run, and died
        before it was told to."""
        launched = self.known.get(report.trainer)
        view = launched.workers.get(node) if launched else None
        if view is not None and isinstance(report.said, said.Exited) and not report.run:
            report = replace(report, run=view.run)
        super().reported(node, report)

    def _heard(self, launched: TorchrunTrainer, node: str, view: WorkerView, what: said.FromWorker) -> None:
        launched.attached = launched.attached or isinstance(what, said.Attached | said.Standing)
        if isinstance(what, said.Resumed):
            if what.generation <= launched.published:  # else it is made up, and nothing is to be kept of it
                self._resumed(launched, node, what)
        elif isinstance(what, said.Standing) and what.at is not None:
            launched.last_step_at = what.at
        super()._heard(launched, node, view, what)

    def _resumed(self, launched: TorchrunTrainer, node: str, resumed: said.Resumed) -> None:
        """Rank 0 has taken its first step in a run."""
        before, launched.last_step_at = launched.last_step_at, resumed.at
        self._reports.paused(
            launched,
            node,
            PauseKind.RESTART if before is None else launched.kind(resumed.generation),
            generation=resumed.generation,
            size=resumed.size,
            step=resumed.step,
            pause_s=0.0 if before is None else max(0.0, resumed.at - before),
        )

    def _exited(self, launched: TorchrunTrainer, node: str, view: WorkerView, end: said.Exited) -> None:
        leaving = view.phase == Phase.LEAVING
        if leaving and node not in launched.members:
            super()._exited(launched, node, view, end)
        elif node in launched.halting or leaving:
            self._halted(launched, node, view, end)
        elif end.code == 0 and self._is_one_of_all(launched, node):
            self._wait_for_rank_0(view)
            if launched.spec.samples is None and not launched.finished:
                launched.led = launched.led or node == launched.leader
            self._vacated(launched)
        else:
            super()._exited(launched, node, view, end)

    def _is_one_of_all(self, launched: TorchrunTrainer, node: str) -> bool:
        """True if a process that ends with exit code 0 says nothing of the others: rank 0 says whether the
        work is done; without an amount of work, all must end so."""
        if launched.finisher or launched.spec.samples is not None:
            return node not in (launched.finisher, launched.leader)
        return True

    def _halted(self, launched: TorchrunTrainer, node: str, view: WorkerView, end: said.Exited) -> None:
        """A process has ended as it was told to; its node stays. It may have done its work before."""
        last = end.last
        if (
            isinstance(last, said.Finished)
            and last.generation >= launched.confirmed
            and not launched.position_told
        ):
            self._finished(launched, node, view, last)
        self._note_failure(launched, node, view, end)
        view.run, view.phase = 0, Phase.STOPPED
        if launched.finisher == node and end.code == 0:
            launched.succeeded = True
        elif launched.finisher == node:
            self._repeat(launched)
        if last is not None and last.at is not None and last.generation >= launched.confirmed:
            launched.last_step_at = last.at
            launched.committed, launched.samples = last.step, last.samples
        if launched.succeeded:
            launched.drop(node)
        self._vacated(launched)

    def _gone(self, launched: TorchrunTrainer, node: str, reason: str, *, blame: bool) -> None:
        ran = launched.workers[node].run
        super()._gone(launched, node, reason, blame=blame)
        if ran and node not in launched.workers:  # the others cannot go on without it
            launched.led = False
            self._halt_all(launched)

    def _repeat(self, launched: TorchrunTrainer) -> None:
        """The next run begins as after every loss."""
        launched.finisher, launched.position_told, launched.ending = "", False, WORK_DONE
        for node, view in list(launched.workers.items()):
            if not view.sent:
                self._send_start(launched, node)

    def _vacated(self, launched: TorchrunTrainer) -> None:
        if launched.led and not any(view.run for view in launched.workers.values()):
            launched.succeeded = True
        if launched.completed and launched.runs.met is None:
            self._meetings.ask(launched.id, launched.runs, lambda: self._vacated(launched))
            return
        if launched.completed and not launched.runs.met:
            self._reports.failed(launched, launched.runs.apart())
            return
        super()._vacated(launched)
        lost = any(node not in launched.workers for node in launched.members)
        if launched.succeeded or (lost and not launched.is_ending):
            self._halt_all(launched)
        changing = lost or launched.pending is not None or bool(launched.halting)
        if changing and not launched.succeeded:  # otherwise it only was to join: the run goes on
            self._advance(launched)


MAX_RESTARTS = 1 << 30
"""There is no limit to a run's restarts: nodes come and go for as long as there is work."""


def environment(
    *, name: str, run: int, group: int, counts: Sequence[int], address: str, port: int
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Variables of torchrun for all processes of the node with the number `group`, and for each; `counts`:
    processes per node.

    `address` and `port` are those of the run's store.
    """
    size, first = sum(counts), sum(counts[:group])
    values = {
        "GROUP_RANK": group,
        "WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": len(counts),
        "ROLE_WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": counts[group],
        "ROLE_NAME": "default",
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": run,
        "TORCHELASTIC_MAX_RESTARTS": MAX_RESTARTS,
        "TORCHELASTIC_RUN_ID": name,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    ranks = ((str(first + i), str(i)) for i in range(counts[group]))
    each = [{"RANK": rank, "ROLE_RANK": rank, "LOCAL_RANK": local} for rank, local in ranks]
    return {variable: str(value) for variable, value in values.items()}, each
