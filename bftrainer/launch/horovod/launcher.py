"""The Horovod launcher: for scripts that are written for Elastic Horovod.

Every trainer has a driver, a process beside the daemon (`elastic.horovod.driver`) that stands in for
Horovod's: it lets the workers of the published membership find each other. New workers stand warm
before that (`gated`), and their scripts run as far as `elastic.attach()` while the members train on.

A worker is a host of its own to Horovod, named by node and start, so that a node that comes back is a
new one. What cannot be repaired from inside goes through the script's checkpoint: nobody stays who has
the state, or a worker dies in the moment when all connect to each other.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from bftrainer.launch.launcher import FOLLOWERS_GRACE_S, AgentLauncher, LaunchedTrainer, WorkerView
from bftrainer.model.actions import Regroup
from bftrainer.model.events import Resync
from bftrainer.model.reports import Message
from bftrainer.model.trainer import TrainerSpec

FIXED = {
    "HOROVOD_ELASTIC": "1",
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
}
"""What every worker gets."""


class Drivers(Protocol):
    """The trainers' drivers: `horovod_drivers.DriverProcesses`, or what a test has."""

    address: str

    def open(self, trainer: int, heard: Callable[[Message], None]) -> None:
        """Have a driver; `heard` is told what it says, and {"type": "lost"} or "failed" when it is gone."""
        ...

    def tell(self, trainer: int, message: Message) -> None: ...

    def end(self, trainer: int) -> None:
        """There is nobody left to lead."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class HorovodTrainer(LaunchedTrainer):
    """A trainer as the Horovod launcher knows it."""

    port: int = 0  # of its driver, once it is there
    pending: Regroup | None = None  # published, but waiting for leavers or for the driver
    formed: int = 0  # the generation in which workers were last let go
    ranks: tuple[str, ...] = ()  # the nodes of it, in the order of their ranks
    hosts: frozenset[str] = frozenset()  # the workers of it
    asking: set[str] = field(default_factory=set)  # those of its workers that want to be let go again
    broken: bool = False  # a worker was lost since the last step of all
    halting: set[str] = field(default_factory=set)  # nodes whose workers have been told to end
    done: dict[str, WorkerView] = field(default_factory=dict)  # ended well before rank 0 said so
    early: tuple[str, Message] | None = None  # what rank 0 said before its driver
    last_step_at: float | None = None
    failure: str = ""  # why there is no driver


class HorovodLauncher(AgentLauncher[HorovodTrainer]):
    """See `AgentLauncher`. A worker trains in the process that `view.run` let run; `joined` after a step."""

    gated = True
    job_type = HorovodTrainer

    def __init__(self, *args: Any, drivers: Drivers, **options: Any) -> None:
        super().__init__(*args, **options)
        self._drivers = drivers

    def add(self, trainer: int, spec: TrainerSpec, **stored: Any) -> None:
        super().add(trainer, spec, **stored)
        if self._jobs[trainer].members:
            self._open(trainer)

    def _forgotten(self, trainer: int) -> None:
        self._drivers.end(trainer)

    def close(self) -> None:
        self._drivers.close()

    # from one membership to the next

    def _send_start(self, trainer: int, node: str) -> None:
        self._open(trainer)
        super()._send_start(trainer, node)

    def _open(self, trainer: int) -> None:
        self._drivers.open(trainer, lambda message: self._heard_driver(trainer, message))

    def _carry_out(self, job: HorovodTrainer, action: Regroup) -> None:
        job.pending = replace(action, members=tuple(n for n in action.members if n in job.workers))
        self._advance(action.trainer, job)

    def _advance(self, trainer: int, job: HorovodTrainer) -> None:
        """The next step towards what is pending: who takes the state along ends first, then all are led."""
        action = job.pending
        if action is None:
            return
        members = [node for node in action.members if node in job.workers]
        leaving = [node for node in action.leaving if node in job.workers]
        if leaving and not any(job.workers[node].joined for node in members):
            self._tell_world(trainer, action.generation, [])
            self._halt(trainer, job, leaving)
            return
        if job.broken and not any(job.workers[node].joined for node in members):
            stranded = [node for node in members if node in self._present(job)]
            self._kill(trainer, stranded, "nobody is left who has the state")
            members = [node for node in members if node not in stranded]
        if not job.port or not members:
            return
        job.pending = None
        for node in leaving:
            self._link.send(node, self._farewell(action))
        for node in members:
            self._let_run(job, action, node)
        hosts = [_host(node, job.workers[node]) for node in members]
        self._tell_world(trainer, action.generation, hosts)

    def _tell_world(self, trainer: int, generation: int, hosts: list[str]) -> None:
        self._drivers.tell(trainer, {"type": "world", "generation": generation, "hosts": hosts})

    def _farewell(self, action: Regroup) -> Message:
        """The worker goes by itself when it finds no place; its agent sees to it that it does."""
        return {
            "type": "regroup",
            "trainer": action.trainer,
            "generation": action.generation,
            "members": list(action.members),
            "leaving": list(action.leaving),
            "grace_s": self._grace_s,
        }

    def _let_run(self, job: HorovodTrainer, action: Regroup, node: str) -> None:
        view = job.workers[node]
        if view.run:
            return
        view.run, view.phase = action.generation, "joining"
        environ = {
            **FIXED,
            "HOROVOD_HOSTNAME": _host(node, view),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": self._drivers.address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(job.port),
        }
        order = {"trainer": action.trainer, "generation": view.generation, "run": view.run}
        self._link.send(node, {"type": "go", **order, "env": {**environ, **dict(job.spec.env)}})

    def _halt(self, trainer: int, job: HorovodTrainer, nodes: list[str]) -> None:
        """Have workers end: rank 0 first, since it writes the state down, then the others."""
        leader = job.ranks[0] if job.ranks else ""
        now = [leader] if leader in nodes else nodes
        for node in now:
            if node not in job.halting:
                job.halting.add(node)
                self._tell_to_stop(trainer, node, self._grace_s if node == leader else FOLLOWERS_GRACE_S)

    def _kill(self, trainer: int, nodes: list[str], reason: str) -> None:
        for node in nodes:
            self._link.send(node, {"type": "kill", "trainer": trainer, "reason": reason})

    # what the driver says

    def _heard_driver(self, trainer: int, message: Message) -> None:
        job = self._jobs[trainer]
        match message["type"]:
            case "up":
                job.port, job.failure = message["port"], ""
                self._advance(trainer, job)
            case "formed":
                self._formed(trainer, job, message)
            case "asking":
                job.asking.add(message["host"])
                self._disown(trainer, job)
            case "torn":
                job.broken = True
                self._kill(trainer, self._present(job), "a peer died while they met")
            case "lost":
                job.port = 0
                self._halt(trainer, job, [n for n, view in job.workers.items() if view.run])
            case "failed":
                job.failure = message["reason"]
                self._kill(trainer, list(job.workers), job.failure)

    def _formed(self, trainer: int, job: HorovodTrainer, message: Message) -> None:
        ranks = tuple(host.rpartition(".")[0] for host in message["hosts"])
        if ranks == job.ranks and all(job.workers[n].joined for n in ranks if n in job.workers):
            for node in ranks:  # nothing has changed but the number
                if node in job.workers:
                    job.workers[node].joined = message["generation"]
        job.formed, job.ranks, job.hosts = message["generation"], ranks, frozenset(message["hosts"])
        job.asking.clear()
        early, job.early = job.early, None
        if early is not None:
            self._resumed(trainer, job, *early)

    # what agents tell

    def _caught_up(self, trainer: int, job: HorovodTrainer, node: str, found: Message) -> None:
        super()._caught_up(trainer, job, node, found)
        view = job.workers[node]
        if view.generation == found["generation"] and found["run"] != view.run:
            view.run = found["run"]  # it was never told to go
            self._emit(Resync(time=self._clock(), trainer=trainer, generation=job.published))

    def said(self, node: str, message: Message) -> None:
        """A worker is one process: its start tells it from others, even if it died before it was let run."""
        job = self._jobs.get(message["trainer"])
        view = job.workers.get(node) if job else None
        super().said(node, {**message, "run": view.run} if view else message)

    def agent_down(self, node: str) -> None:
        for trainer, job in self._jobs.items():
            if node in job.workers:
                self._lost(trainer, job, node)
        super().agent_down(node)

    def _heard(
        self, trainer: int, job: HorovodTrainer, node: str, view: WorkerView, message: Message
    ) -> None:
        if "generation" in message:  # scripts know the membership that they started in
            message = {**message, "generation": max(job.formed, job.confirmed)}
        if message["type"] == "resumed":
            self._resumed(trainer, job, node, message)
        elif message["type"] not in ("progress", "finished") or node in job.ranks[:1]:
            job.last_step_at = message.get("at", job.last_step_at)
            super()._heard(trainer, job, node, view, message)

    def _resumed(self, trainer: int, job: HorovodTrainer, node: str, message: Message) -> None:
        """Rank 0 has taken its first step with all others: from here on, everybody has the state."""
        if node not in job.ranks[:1] or message["size"] != len(job.ranks):
            job.early = (node, message)
            return
        before = job.last_step_at
        fresh = not any(job.workers[n].joined for n in job.ranks if n in job.workers)
        kind = "restart" if before is None or fresh else job.kind(job.formed)
        pause_s = 0.0 if before is None else max(0.0, message["at"] - before)
        for member in self._present(job):
            job.workers[member].joined = job.formed
            job.workers[member].phase = "member"
        job.last_step_at, job.broken = message["at"], False
        self._paused(trainer, job, node, kind, {**message, "generation": job.formed, "pause_s": pause_s})

    def _exited(
        self, trainer: int, job: HorovodTrainer, node: str, view: WorkerView, message: Message
    ) -> None:
        code, last = message["code"], message["last"]
        if view.run:
            message = {**message, "last": {**last, "generation": max(job.formed, job.confirmed)}}
        self._tell_gone(trainer, node, view)
        if view.phase == "leaving" or job.finished:
            super()._exited(trainer, job, node, view, message)
        elif node in job.halting:
            self._gone(trainer, node, "its driver was lost", blame=False)
            self._halt(trainer, job, [n for n, other in job.workers.items() if other.run])
        elif job.failure:
            self._gone(trainer, node, job.failure, blame=True)
        elif code == 0 and last.get("type") != "finished" and self._follows(job, node):
            job.done[node] = job.workers.pop(node)  # whether the work is done is rank 0's to say
            job.broken = True
            self._check_finished(trainer, job)
        elif -code == signal.SIGABRT and job.broken:
            self._gone(trainer, node, "Horovod gave up after a loss", blame=False)
        else:
            super()._exited(trainer, job, node, view, message)

    def _gone(self, trainer: int, node: str, reason: str, *, blame: bool) -> None:
        job = self._jobs[trainer]
        self._lost(trainer, job, node)
        super()._gone(trainer, node, reason, blame=blame)
        self._disown(trainer, job)
        if not job.finished:
            self._vacated(trainer, job)

    def _follows(self, job: HorovodTrainer, node: str) -> bool:
        """Whether another worker is rank 0, and there to say whether the work is done."""
        return bool(job.ranks) and node != job.ranks[0] and self._leads(job)

    def _leads(self, job: HorovodTrainer) -> bool:
        """Whether rank 0 is in its world still."""
        if not job.ranks or job.ranks[0] not in self._present(job):
            return False
        return _host(job.ranks[0], job.workers[job.ranks[0]]) not in job.asking

    def _disown(self, trainer: int, job: HorovodTrainer) -> None:
        """Who ended well is lost where rank 0 did not say that the work was done, and no longer can."""
        while job.done and not job.finished and not self._leads(job):
            node, view = job.done.popitem()
            job.workers[node] = view
            reason = f"the program ended by itself after {job.samples} of {job.spec.samples} samples"
            super()._gone(trainer, node, reason, blame=True)

    def _present(self, job: HorovodTrainer) -> list[str]:
        """The nodes whose workers are those that were let go last, and not others started there since."""
        return [n for n in job.ranks if n in job.workers and _host(n, job.workers[n]) in job.hosts]

    def _lost(self, trainer: int, job: HorovodTrainer, node: str) -> None:
        view = job.workers[node]
        job.broken = job.broken or node in job.ranks
        if job.pending is not None:  # a worker that is started there anew comes with a later membership
            others = tuple(member for member in job.pending.members if member != node)
            job.pending = replace(job.pending, members=others)
        self._tell_gone(trainer, node, view)

    def _tell_gone(self, trainer: int, node: str, view: WorkerView) -> None:
        self._drivers.tell(trainer, {"type": "gone", "host": _host(node, view)})

    def _vacated(self, trainer: int, job: HorovodTrainer) -> None:
        super()._vacated(trainer, job)
        job.halting &= job.workers.keys()
        if job.finished:
            job.done.clear()
        if not job.workers:
            self._drivers.end(trainer)
            job.port, job.formed, job.ranks, job.early, job.broken = 0, 0, (), None, False
            job.hosts = frozenset()
        else:
            self._advance(trainer, job)


def _host(node: str, view: WorkerView) -> str:
    """What Horovod calls a worker."""
    return f"{node}.{view.generation}"
