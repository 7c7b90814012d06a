"""The torchrun launcher: for scripts that only know checkpoint and restart.

Workers get the environment that torchrun gives (RANK, WORLD_SIZE, MASTER_ADDR, ...), so scripts written
for it run as they are. Every change of membership ends the processes of the run before and starts
those of the next; a run's number is the generation of its membership. torchrun's own agents and their
rendezvous are not needed: our agents start the processes, and the daemon already knows who takes part.

Rank 0 is told to stop first (SIGTERM) and has its grace time to write a checkpoint, while the others
still take part in its steps; then the others stop, and the next run begins. New nodes stand warm by then
(`gated`). A process that dies takes its run along: the next begins without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from bftrainer.launch.launcher import FOLLOWERS_GRACE_S, AgentLauncher, LaunchedTrainer, WorkerView
from bftrainer.model.actions import Regroup
from bftrainer.model.events import Resync
from bftrainer.model.reports import Message
from bftrainer.model.trainer import TrainerSpec

ENDED = ("done", "stopped")
"""Phases of a worker whose process has ended and whose node stays."""
MAX_RESTARTS = 1 << 30
"""Nobody counts a run's restarts: nodes come and go for as long as there is work."""


class Stores(Protocol):
    """Where a run's processes find each other: `elastic.programs.tcp_store`, or what a test has."""

    address: str

    def prepare(self) -> None:
        """A store will be wanted soon."""
        ...

    def open(self, trainer: int, run: int, opened: Callable[[int], None]) -> None:
        """Have a new store; `opened` is told its port, later."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class TorchrunTrainer(LaunchedTrainer):
    """A trainer as the torchrun launcher knows it."""

    pending: Regroup | None = None  # to run as soon as the run before has ended
    port: int = 0  # of the pending run's store, once it is there
    leader: str = ""  # the node of rank 0 in the last run
    halting: set[str] = field(default_factory=set)  # nodes whose processes have been told to stop
    last_step_at: float | None = None  # as far as has been said


class TorchrunLauncher(AgentLauncher[TorchrunTrainer]):
    """See `AgentLauncher`. A worker's process takes part in run `view.run`; 0: it waits, warm or ended."""

    gated = True
    job_type = TorchrunTrainer

    def __init__(self, *args: Any, stores: Stores, **options: Any) -> None:
        super().__init__(*args, **options)
        self._stores = stores

    def add(self, trainer: int, spec: TrainerSpec, **stored: Any) -> None:
        super().add(trainer, spec, **stored)
        job = self._jobs[trainer]
        job.leader = job.members[0] if job.members else ""
        self._stores.prepare()

    def close(self) -> None:
        self._stores.close()

    # from one run to the next

    def _carry_out(self, job: TorchrunTrainer, action: Regroup) -> None:
        job.pending, job.port = (action, 0) if action.members else (None, 0)
        if action.members:
            self._stores.open(action.trainer, action.generation, lambda port: self._opened(job, action, port))
        self._advance(action.trainer, job)

    def _dismiss(self, trainer: int, job: TorchrunTrainer, node: str) -> None:
        view = job.workers[node]
        if view.phase in ENDED:
            del job.workers[node]
        elif not view.run:  # it waits, warm, for a run that is never to begin
            self._stop(trainer, node)
        else:
            super()._dismiss(trainer, job, node)

    def _stop(self, trainer: int, node: str) -> None:
        view = self._jobs[trainer].workers.get(node)
        if view is not None and view.phase in ENDED:
            del self._jobs[trainer].workers[node]
        else:
            super()._stop(trainer, node)

    def _opened(self, job: TorchrunTrainer, action: Regroup, port: int) -> None:
        if job.pending is action:
            job.port = port
            self._advance(action.trainer, job)

    def _advance(self, trainer: int, job: TorchrunTrainer) -> None:
        """The next step towards what is pending: rank 0 stops, then the others, then the run begins."""
        running = [node for node, view in job.workers.items() if view.run]
        if job.leader in running:
            self._halt(trainer, job, job.leader, self._grace_s)
        elif running:
            self._halt_all(trainer, job)
        elif job.pending is not None and job.port:
            self._begin(job, job.pending)

    def _halt_all(self, trainer: int, job: TorchrunTrainer) -> None:
        for node, view in job.workers.items():
            if view.run:
                self._halt(trainer, job, node, FOLLOWERS_GRACE_S)

    def _halt(self, trainer: int, job: TorchrunTrainer, node: str, grace_s: float) -> None:
        if node not in job.halting:
            job.halting.add(node)
            self._tell_to_stop(trainer, node, grace_s)

    def _begin(self, job: TorchrunTrainer, run: Regroup) -> None:
        job.pending, job.leader, job.halting = None, run.members[0], set()
        for rank, node in enumerate(run.members):
            view = job.workers.get(node)
            if view is None:
                continue  # lost meanwhile: the next membership is on its way
            if view.phase != "ready":  # its process has ended with the run before
                self._send_start(run.trainer, node)
            view.run = view.joined = run.generation
            view.phase = "member"
            self._link.send(
                node,
                {
                    "type": "go",
                    "trainer": run.trainer,
                    "generation": view.generation,
                    "run": run.generation,
                    "env": self._environment(job, rank, len(run.members), run.generation),
                },
            )

    def _environment(self, job: TorchrunTrainer, rank: int, size: int, run: int) -> dict[str, str]:
        """What torchrun sets, for one process per node."""
        values = {
            "RANK": rank,
            "GROUP_RANK": rank,
            "ROLE_RANK": rank,
            "WORLD_SIZE": size,
            "GROUP_WORLD_SIZE": size,
            "ROLE_WORLD_SIZE": size,
            "LOCAL_RANK": 0,
            "LOCAL_WORLD_SIZE": 1,
            "ROLE_NAME": "default",
            "MASTER_ADDR": self._stores.address,
            "MASTER_PORT": job.port,
            "TORCHELASTIC_RESTART_COUNT": run,
            "TORCHELASTIC_MAX_RESTARTS": MAX_RESTARTS,
            "TORCHELASTIC_RUN_ID": job.spec.name,
            "TORCHELASTIC_USE_AGENT_STORE": True,
        }
        return {name: str(value) for name, value in values.items()}

    # what agents tell

    def _caught_up(self, trainer: int, job: TorchrunTrainer, node: str, found: Message) -> None:
        super()._caught_up(trainer, job, node, found)
        view = job.workers[node]
        if view.generation == found["generation"] and found["run"] != view.run:
            self._emit(Resync(time=self._clock(), trainer=trainer, generation=job.published))

    def said(self, node: str, message: Message) -> None:
        """What ends as run 0 was to begin the present run, and died before it was told to."""
        view = self._jobs[message["trainer"]].workers.get(node)
        if view is not None and message["type"] == "exited" and not message["run"]:
            message = {**message, "run": view.run}
        super().said(node, message)

    def _heard(
        self, trainer: int, job: TorchrunTrainer, node: str, view: WorkerView, message: Message
    ) -> None:
        if message["type"] == "resumed":
            self._resumed(trainer, job, node, message)
        elif "at" in message:
            job.last_step_at = message["at"]
        super()._heard(trainer, job, node, view, message)

    def _resumed(self, trainer: int, job: TorchrunTrainer, node: str, message: Message) -> None:
        """Rank 0 has taken its first step in a run."""
        before = job.last_step_at
        pause_s = 0.0 if before is None else max(0.0, message["at"] - before)
        kind = "restart" if before is None else job.kind(message["generation"])
        job.last_step_at = message["at"]
        self._paused(trainer, job, node, kind, {**message, "pause_s": pause_s})

    def _exited(
        self, trainer: int, job: TorchrunTrainer, node: str, view: WorkerView, message: Message
    ) -> None:
        if view.phase == "leaving" and node not in job.members:
            super()._exited(trainer, job, node, view, message)
        elif node in job.halting or view.phase == "leaving":
            self._halted(trainer, job, node, view, message["last"])
        elif message["code"] == 0 and (node != job.leader or job.spec.samples is None):
            view.run, view.phase = 0, "done"  # whether the work is done is rank 0's to say
            if job.spec.samples is None:
                job.finished = all(v.phase == "done" for n, v in job.workers.items() if n in job.members)
            self._check_finished(trainer, job)
        else:
            super()._exited(trainer, job, node, view, message)

    def _halted(self, trainer: int, job: TorchrunTrainer, node: str, view: WorkerView, last: Message) -> None:
        """A process has ended as it was told to; its node stays."""
        view.run, view.phase = 0, "stopped"
        if "at" in last and last["generation"] >= job.confirmed:
            job.last_step_at = last["at"]
            job.committed, job.samples = last["step"], last["samples"]
        if job.finished:
            del job.workers[node]
        self._vacated(trainer, job)

    def _gone(self, trainer: int, node: str, reason: str, *, blame: bool) -> None:
        job = self._jobs[trainer]
        ran = job.workers[node].run
        super()._gone(trainer, node, reason, blame=blame)
        if ran:  # the others cannot go on without it
            self._halt_all(trainer, job)

    def _vacated(self, trainer: int, job: TorchrunTrainer) -> None:
        super()._vacated(trainer, job)
        lost = any(node not in job.workers for node in job.members)
        if job.finished or lost:
            self._halt_all(trainer, job)
        changing = lost or job.pending is not None or bool(job.halting)
        if changing and not job.finished:  # otherwise it only was to join: the run goes on
            self._advance(trainer, job)
