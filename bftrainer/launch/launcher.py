"""What all launchers have in common: workers behind agents.

A synchronous state machine between the engine and the agents: it turns actions into messages and
messages into events, and keeps the books of pauses and progress. It does no I/O but `link.send`. How
a membership is carried out is each launcher's own.

Fencing: a worker is known by trainer, node, the generation that started it and the run that it takes
part in; what an earlier one says is dropped. Progress counts only from generations that no member has
left behind (`confirmed`).
"""

from __future__ import annotations

import logging
import signal
import time as wall
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from bftrainer.model.actions import Action, Regroup, StartWorker, StopWorker
from bftrainer.model.events import Measured, TrainerEnded, WorkerLost, WorkersReady
from bftrainer.model.reports import MEASURE_AGAIN_S, MEASURE_S, Message, Pause, Progress
from bftrainer.model.trainer import Cost, TrainerSpec, TrainerStatus
from bftrainer.ports import Emit, Journal, Link

log = logging.getLogger(__name__)

MAX_DELAY_S = 30.0
FOLLOWERS_GRACE_S = 2.0
"""What ranks other than 0 have to end in: they keep nothing."""
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)
"""Signals that say nothing against the program that they end."""


@dataclass(slots=True)
class WorkerView:
    """A worker as the launcher knows it.

    `run` tells the processes apart that one worker runs one after the other, where its runtime starts
    it anew for every membership; 0 where it does not, and before the first.
    """

    generation: int  # that started it
    phase: str = "starting"  # starting, ready, member, finished, leaving
    joined: int = 0
    started_at: float = 0.0
    sent: bool = False
    attempt: int = 0
    run: int = 0
    heard: int = 0  # the latest generation that it said anything about
    left: bool = False  # it has nothing, or has written down what it had: it can be killed


@dataclass(slots=True)
class LaunchedTrainer:
    """A trainer as the launcher knows it."""

    spec: TrainerSpec
    published: int = 0
    members: tuple[str, ...] = ()
    kinds: dict[int, str] = field(default_factory=dict)  # generation -> what it changed
    lost: bool = False  # since the last generation, somebody who had joined
    workers: dict[str, WorkerView] = field(default_factory=dict)
    confirmed: int = 0  # the latest generation that a worker has joined
    committed: int = 0  # the last step that was reported as taken by all
    samples: int = 0
    window_from: tuple[float, int] | None = None  # when the speed's measurement began, and the samples then
    measured: set[int] = field(default_factory=set)  # sizes of which the speed is known
    init_s: float | None = None  # of the newcomers that will join next
    finished: bool = False
    ended: bool = False  # for the engine: to be forgotten when its last worker has gone
    reported: Progress | None = None

    def kind(self, generation: int) -> str:
        """What a membership that became real changed, with those before it that a later one overtook.

        A newcomer may be ready before the survivors of a loss have met: the one pause is the loss's.
        """
        kind = self.kinds.get(generation, "join")
        since = [k for g, k in self.kinds.items() if self.confirmed < g <= generation]
        if kind != "restart" and "loss" in since:
            kind = self.kinds[generation] = "loss"
        return kind

    def forget(self, node: str) -> WorkerView:
        """The worker on a node, which is there no more."""
        view = self.workers.pop(node)
        if view.phase != "leaving":
            self.lost = self.lost or view.joined > 0
        return view


J = TypeVar("J", bound=LaunchedTrainer)


class AgentLauncher(ABC, Generic[J]):
    """Implements `ports.Launcher` but for `_carry_out`: how a membership becomes real.

    The agents' messages come in through `agent_up`, `agent_down` and `said`.
    """

    gated: ClassVar[bool] = False
    """Whether workers stand warm before the script and wait for a `go` with its environment."""

    job_type: type[J]
    """What the launcher keeps of a trainer."""

    def __init__(
        self,
        link: Link,
        emit: Emit,
        journal: Journal,
        *,
        trainer_dir: str,
        store_id: str,
        grace_s: float,
        warm_pool: bool = True,
        clock: Callable[[], float] = wall.time,
    ) -> None:
        self._link, self._emit, self._journal = link, emit, journal
        self._trainer_dir, self._store_id, self._grace_s = trainer_dir, store_id, grace_s
        self._warm_pool = warm_pool
        self._clock = clock
        self._jobs: dict[int, J] = {}

    # what the daemon tells and asks

    def add(
        self,
        trainer: int,
        spec: TrainerSpec,
        *,
        published: int = 0,
        members: tuple[str, ...] = (),
        step: int = 0,
        samples: int = 0,
    ) -> None:
        """Make a trainer known before any action names it; after a restart, with what is stored."""
        self._jobs[trainer] = self.job_type(
            spec=spec,
            published=published,
            members=members,
            confirmed=published,
            committed=step,
            samples=samples,
        )

    def forget(self, trainer: int) -> None:
        """Forget a trainer that the engine has ended, as soon as its last worker has gone."""
        self._jobs[trainer].ended = True
        self._prune()

    def knows(self, trainer: int) -> bool:
        """Whether the launcher has this trainer: it was added and is not forgotten."""
        return trainer in self._jobs

    def _prune(self) -> None:
        """Forget the trainers that have ended and have no worker left."""
        for trainer in [id_ for id_, job in self._jobs.items() if job.ended and not job.workers]:
            del self._jobs[trainer]
            self._forgotten(trainer)

    def _forgotten(self, trainer: int) -> None:
        """A trainer is not known any more: let go of what the launcher itself runs for it."""

    def close(self) -> None:
        """The daemon stops: so does what the launcher itself runs."""

    def workers(self, trainer: int) -> dict[str, str]:
        """Node -> phase of the trainer's workers that may still be there."""
        job = self._jobs.get(trainer)
        return {node: view.phase for node, view in job.workers.items() if view.sent} if job else {}

    def any_workers(self) -> bool:
        """Whether any trainer's worker may still be there."""
        return any(self.workers(trainer) for trainer in self._jobs)

    def views(self, trainer: int) -> Mapping[str, WorkerView]:
        """Node -> worker, as far as agents have told."""
        return self._jobs[trainer].workers

    def busy(self, node: str) -> bool:
        """Whether a worker may be running on a node that still has something to do."""
        views = (job.workers.get(node) for job in self._jobs.values())
        return any(view is not None and view.sent and not view.left for view in views)

    def log_folder(self, trainer: int, spec: TrainerSpec) -> Path:
        """Where the workers of a trainer write what they print, a file a node.

        It is a folder of the trainer's user, and only that user's processes open it. The mark tells
        the trainers of one daemon's books from those of others, whose numbers may be the same.
        """
        place = Path(spec.workdir, self._trainer_dir.format(user=spec.user))
        return place / f"{trainer}-{spec.name}-{self._store_id}"

    def checkpoint_folder(self, trainer: int, spec: TrainerSpec) -> Path:
        """Where a trainer's checkpoints are: its spec's place, or one of its own."""
        return Path(spec.checkpoint_dir or self.log_folder(trainer, spec) / "checkpoints")

    def perform(self, action: Action) -> None:
        job = self._jobs[action.trainer]
        match action:
            case StartWorker():
                if not job.finished:
                    view = WorkerView(action.generation, started_at=self._clock(), attempt=action.attempt)
                    job.workers[action.node] = view
                    self._send_start(action.trainer, action.node)
            case StopWorker():
                self._stop(action.trainer, action.node)
            case Regroup():
                self._regroup(action, job)
        self._prune()

    # what agents tell

    def agent_up(self, node: str, inventory: list[Message], wanted: Collection[int]) -> None:
        """An agent has connected with what runs on its node, of which only `wanted` trainers may.

        Takes over what should be there, stops what should not, sends what waited for the agent.
        """
        there = {found["trainer"]: found for found in inventory}
        for trainer, found in there.items():
            job = self._jobs.get(trainer)
            if job is None or trainer not in wanted:
                self._link.send(node, {"type": "stop", "trainer": trainer, "grace_s": self._grace_s})
            elif node not in job.workers:
                job.workers[node] = WorkerView(
                    found["generation"],
                    found["phase"],
                    found["joined"],
                    self._clock(),
                    sent=True,
                    run=found["run"],
                )
            else:
                self._caught_up(trainer, job, node, found)
        for trainer, job in self._jobs.items():
            view = job.workers.get(node)
            if view is not None and trainer not in wanted:
                del job.workers[node]  # what it waited for has been called off
            elif view is not None and not view.sent:
                self._send_start(trainer, node)
            elif view is not None and trainer not in there:
                self._gone(trainer, node, "its agent does not have it", blame=False)
        self._prune()
        self._warm(node)

    def _caught_up(self, trainer: int, job: J, node: str, found: Message) -> None:
        """A connection broke and came back: make good what was not heard meanwhile."""
        view = job.workers[node]
        if view.generation == found["generation"] and view.phase == "starting" and found["phase"] == "ready":
            self._ready(trainer, job, node, view)

    def agent_down(self, node: str) -> None:
        """A node is gone with everything on it, or with what was to start there; no harm if said twice."""
        for trainer, job in self._jobs.items():
            if node in job.workers:
                job.forget(node)
                self._vacated(trainer, job)
        self._prune()

    def said(self, node: str, message: Message) -> None:
        """A message of a worker on `node`, or of its agent about it."""
        trainer = message["trainer"]
        job = self._jobs.get(trainer)
        view = job.workers.get(node) if job else None
        if job is None or view is None or (message["started"], message["run"]) != (view.generation, view.run):
            return  # an earlier worker: fenced off
        if not self._link.serves(node, job.spec):
            return  # another user's agent, which has no business with this trainer
        if message["type"] == "exited":
            self._exited(trainer, job, node, view, message)
            self._prune()
        elif view.phase != "leaving":
            self._heard(trainer, job, node, view, message)
        elif message["type"] == "left":
            view.left = True

    def _heard(self, trainer: int, job: J, node: str, view: WorkerView, message: Message) -> None:
        view.heard = max(view.heard, message.get("generation", 0))
        match message["type"]:
            case "ready":
                self._ready(trainer, job, node, view)
            case "joined":
                self._joined(trainer, job, node, view, message)
            case "caught_up":
                log.info(
                    "trainer %d: %s has got its state of %.0f MB in %.1f s",
                    trainer,
                    node,
                    message["bytes"] / 1e6,
                    message["seconds"],
                )
                job.window_from = None  # from now on more nodes share the samples
            case "progress" if message["generation"] >= job.confirmed:
                self._progress(trainer, job, message)
            case "finished" | "metrics" if message["generation"] >= job.confirmed:
                self._last_words(trainer, job, view, message)

    # actions into messages

    def _send_start(self, trainer: int, node: str) -> None:
        job = self._jobs[trainer]
        view, spec = job.workers[node], job.spec
        if not self._link.serves(node, spec):
            return  # goes out when the agent comes
        view.sent = True
        self._link.send(
            node,
            {
                "type": "start",
                "trainer": trainer,
                "generation": view.generation,
                **_program(spec),
                "log": str(self.log_folder(trainer, spec) / f"{node}.log"),
                "delay_s": min(MAX_DELAY_S, 2.0 ** (view.attempt - 1)) if view.attempt else 0.0,
                "grace_s": self._grace_s,
                "gated": self.gated,
                "warm": self._warm_pool,
                "worker": {
                    "samples": spec.samples,
                    "checkpoint_dir": str(self.checkpoint_folder(trainer, spec)),
                    "checkpoint_every_s": spec.checkpoint_every_s,
                    "batch": dict(spec.batch),
                },
            },
        )

    def _warm(self, node: str) -> None:
        """Tell an agent what may come, so that it can have the imports done before."""
        for job in self._jobs.values():
            if self._warm_pool and not job.finished and self._link.serves(node, job.spec):
                self._link.send(node, {"type": "warm", **_program(job.spec)})
                return  # one: agents keep one warm process

    def _regroup(self, action: Regroup, job: J) -> None:
        newcomers = [n for n in action.members if n not in job.workers or not job.workers[n].joined]
        if newcomers:
            kind = "join" if len(newcomers) < len(action.members) else "restart"
        elif action.leaving:
            kind = "leave"
        else:
            staying = job.workers.keys() & set(action.members)
            lost = job.lost or any(view.joined for n, view in job.workers.items() if n not in staying)
            kind = "loss" if lost else "join"  # of newcomers who never were members
        job.lost = False
        job.kinds = {g: k for g, k in job.kinds.items() if g >= job.confirmed} | {action.generation: kind}
        job.published, job.members = action.generation, action.members
        for node in action.leaving:
            if node in job.workers:
                self._dismiss(action.trainer, job, node)
        self._carry_out(job, action)

    def _dismiss(self, trainer: int, job: J, node: str) -> None:
        """A member is to leave; it hears of it with the membership."""
        job.workers[node].phase = "leaving"

    @abstractmethod
    def _carry_out(self, job: J, action: Regroup) -> None:
        """Make a membership real, now that it is the published one."""

    def _stop(self, trainer: int, node: str) -> None:
        view = self._jobs[trainer].workers.get(node)
        if view is None:
            return
        if not view.sent:
            del self._jobs[trainer].workers[node]
            return
        view.phase, view.left = "leaving", True
        self._tell_to_stop(trainer, node, self._grace_s)

    def _tell_to_stop(self, trainer: int, node: str, grace_s: float) -> None:
        """Have the process on a node end: it has `grace_s` to write down what it has."""
        self._link.send(node, {"type": "stop", "trainer": trainer, "grace_s": grace_s})

    # messages into events

    def _ready(self, trainer: int, job: J, node: str, view: WorkerView) -> None:
        if view.phase != "starting":
            return
        view.phase = "ready"
        now = self._clock()
        job.init_s = max(job.init_s or 0.0, now - view.started_at)
        self._emit(
            WorkersReady(time=now, trainer=trainer, generation=view.generation, nodes=frozenset({node}))
        )

    def _joined(self, trainer: int, job: J, node: str, view: WorkerView, message: Message) -> None:
        """A member trains in a new membership, in the process in which it trained before, if it did."""
        view.phase, view.joined = "member", message["generation"]
        kind = job.kind(message["generation"])
        job.confirmed = max(job.confirmed, message["generation"])
        if not message["survivor"]:
            if message["size"] > 1 and kind != "restart":
                return
            kind = "restart"
        self._paused(trainer, job, node, kind, message)

    def _paused(self, trainer: int, job: J, node: str, kind: str, message: Message) -> None:
        """Training goes on after a change of membership: keep the books of what that took."""
        generation, now = message["generation"], self._clock()
        self._journal.pause(
            Pause(
                time=now,
                trainer=trainer,
                generation=generation,
                node=node,
                kind=kind,
                size=message["size"],
                step=message["step"],
                pause_s=message["pause_s"],
                lost_steps=max(0, job.committed - message["step"]),
            )
        )
        job.confirmed = max(job.confirmed, generation)
        job.committed = min(job.committed, message["step"])
        job.window_from = None
        if kind == "join":
            up = Cost(stall_s=message["pause_s"], init_s=job.init_s or 0.0)
            self._emit(Measured(time=now, trainer=trainer, generation=generation, up=up))
        elif kind in ("leave", "loss"):
            down = Cost(stall_s=message["pause_s"])
            self._emit(Measured(time=now, trainer=trainer, generation=generation, down=down))
        job.init_s = None

    def _progress(self, trainer: int, job: J, message: Message) -> None:
        now = self._clock()
        job.committed = max(job.committed, message["step"])
        job.samples = message["samples"]
        self._tell_progress(trainer, job, message, message["rate"])
        if job.window_from is None:
            job.window_from = (now, job.samples)
            return
        since, samples = job.window_from
        if now - since >= (MEASURE_AGAIN_S if message["size"] in job.measured else MEASURE_S):
            job.window_from = (now, job.samples)
            job.measured.add(message["size"])
            speed = (job.samples - samples) / (now - since)
            if speed > 0 and job.spec.n_min <= message["size"] <= job.spec.n_max:
                self._emit(
                    Measured(
                        time=now,
                        trainer=trainer,
                        generation=job.published,
                        point=(message["size"], speed),
                    )
                )

    def _last_words(self, trainer: int, job: J, view: WorkerView, message: Message) -> None:
        if message["type"] == "finished":
            view.phase = "finished"
            job.finished = True
            job.committed, job.samples = message["step"], message["samples"]
            self._tell_progress(trainer, job, {**message, "size": len(job.members)}, 0.0)
        else:  # metrics, said between two reports of progress: with the step that they belong to
            self._tell_progress(trainer, job, message, job.reported.rate if job.reported else None)

    def _tell_progress(self, trainer: int, job: J, message: Message, rate: float | None) -> None:
        before = job.reported.metrics if job.reported else {}
        job.reported = Progress(
            time=self._clock(),
            trainer=trainer,
            generation=message["generation"],
            size=message["size"],
            step=message["step"],
            samples=message["samples"],
            epoch=message["epoch"],
            rate=rate,
            metrics={**before, **message["metrics"]},
        )
        self._journal.progressed(job.reported)

    def _exited(self, trainer: int, job: J, node: str, view: WorkerView, message: Message) -> None:
        code, last = message["code"], message["last"]
        if view.phase == "leaving":
            del job.workers[node]
            if last.get("type") == "left" and last["step"] >= job.committed:
                job.committed, job.samples = last["step"], last["samples"]
                self._tell_progress(trainer, job, {**last, "size": 0}, 0.0)
            self._vacated(trainer, job)
            return
        if last.get("type") == "finished" and last["generation"] >= job.confirmed and not job.finished:
            self._last_words(trainer, job, view, last)  # said while nobody listened
        if code == 0 and job.spec.samples is None:
            job.finished = True
        if job.finished:
            del job.workers[node]
            self._vacated(trainer, job)
            return
        if code == 0:
            reason = f"the program ended by itself after {job.samples} of {job.spec.samples} samples"
        else:
            reason = message["reason"] or _why(code)
        self._gone(trainer, node, reason, blame=-code not in FROM_OUTSIDE)

    def _gone(self, trainer: int, node: str, reason: str, *, blame: bool) -> None:
        job = self._jobs[trainer]
        view = job.forget(node)
        if view.phase == "leaving" or job.finished:
            self._vacated(trainer, job)
            return
        log.info("trainer %d lost its worker on %s: %s", trainer, node, reason)
        self._emit(
            WorkerLost(
                time=self._clock(),
                trainer=trainer,
                node=node,
                generation=view.generation,
                reason=f"{reason}; see bftrainer logs {job.spec.name} --node {node}",
                blame=blame,
                samples=float(job.samples),
            )
        )

    def _vacated(self, trainer: int, job: J) -> None:
        """A worker is gone that nobody will miss."""
        self._check_finished(trainer, job)

    def _check_finished(self, trainer: int, job: J) -> None:
        """A finished trainer is over when the last member that finished has exited."""
        if job.finished and not any(v.phase in ("member", "finished") for v in job.workers.values()):
            self._emit(
                TrainerEnded(
                    time=self._clock(),
                    trainer=trainer,
                    generation=job.published,
                    status=TrainerStatus.COMPLETED,
                    reason="its work is done",
                )
            )


def _program(spec: TrainerSpec) -> Message:
    """What an agent has to know to run a trainer's program."""
    return {"command": list(spec.command), "workdir": spec.workdir, "env": dict(spec.env)}


def _why(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"killed by signal {-code}"
