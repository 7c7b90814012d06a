"""A launcher's records of a trainer and its workers. Pure."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from bftrainer.messages.diagnostic import Diagnostic
from bftrainer.messages.ends import NATIVE_APART, UNTOLD
from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.reports import PauseKind, Progress
from bftrainer.model.text import duration
from bftrainer.model.trainer import AdaptingBatch, TrainerSpec
from bftrainer.wire.phases import Phase

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)
"""Signals that say nothing against the program that they end."""


@dataclass(slots=True)
class WorkerView:
    """A worker as the launcher knows it.

    `run` tells apart the processes that one worker runs one after the other, where its runtime starts a new
    one for every membership; 0 where it does not, and before the first.
    """

    generation: int  # that started it
    phase: Phase = Phase.STARTING
    joined: int = 0  # the latest membership that it has joined
    started_at: float = 0.0
    sent: bool = False  # its agent has been told to start it
    attempt: int = 0
    workers: int = 1  # how many processes it is, with a rank each
    run: int = 0
    heard: int = 0  # the latest generation that it said anything about
    to_end: bool = False  # it has said that the work is done, and has a limited time to end
    overdue: str = ""  # why its time was up, if it was: it is being killed for that
    left: bool = False  # it has nothing, or has written down what it had: it can be killed
    silent: bool = False  # its script has not been ready for long
    repeated: bool = False  # it is ended because rank 0 did not end well: the script's last part runs again


REPEATED = "rank 0 did not end well after the work was done: what the script has after its loop runs again"
WORK_DONE = "its work is done"
PEER_GONE = (
    "gloo/transport",
    "closed by peer",
    "reset by peer",
    "Broken pipe",
    "DistBackendError",
    "Horovod",
)
"""An error with one of these words may come of another rank's end, and says nothing against a script."""
RECENT_S = 60.0
FREE_DEATHS = 2
"""Workers that a node may lose within `RECENT_S` before the next one starts later."""
MOST_KINDS = 100
"""Memberships without a worker yet whose changes are remembered."""
FAILED_LATELY_S = 600.0
"""Seconds for which its user is told that its program has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """Bounds of one trainer's workers. They call `hit` with a setting's name, a trainer's user and the bound
    where workers exceed it."""

    metrics: int = 100  # names of figures that a script may report: each has a column in what is shown
    hit: Callable[[str, str, float], None] = lambda bound, user, at: None


class WorkersByNode:
    """An index of the workers of all trainers of one launcher. `LaunchedTrainer` keeps it up to date."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[int, WorkerView]] = {}

    def put(self, node: str, trainer: int, view: WorkerView) -> None:
        """Note a trainer's worker on a node, in place of an earlier one."""
        self._nodes.setdefault(node, {})[trainer] = view

    def drop(self, node: str, trainer: int) -> None:
        """Note that a trainer has no worker on a node any more."""
        there = self._nodes[node]
        del there[trainer]
        if not there:
            del self._nodes[node]

    def on(self, node: str) -> Mapping[int, WorkerView]:
        """Trainer -> its worker on a node."""
        return self._nodes.get(node, {})

    def __iter__(self) -> Iterator[WorkerView]:
        return (view for there in self._nodes.values() for view in there.values())


@dataclass(slots=True)
class LaunchedTrainer:
    """A trainer as the launcher knows it. `slow_start` is what a worker has not done that is not ready, and
    `silent_start` what its user is told meanwhile; `apart` is said of workers that never trained together,
    and `untold_samples` of a script that tells of none."""

    slow_start: ClassVar[str] = "was not ready"
    silent_start: ClassVar[str] = "its worker is not ready yet"
    apart: ClassVar[Diagnostic] = NATIVE_APART
    untold_samples: ClassVar[Diagnostic] = UNTOLD

    id: int
    spec: TrainerSpec
    by_node: WorkersByNode = field(default_factory=WorkersByNode)
    published: int = 0
    members: tuple[str, ...] = ()
    kinds: dict[int, PauseKind] = field(default_factory=dict)  # generation -> what it changed
    lost: bool = False  # since the last generation, a worker that had joined
    confirmed: int = 0  # the latest generation that a worker has joined
    committed: int = 0  # the last step that was reported as taken by all
    samples: int = 0
    furthest: int = 0  # the most samples that were told
    furthest_at: float | None = None  # and when they were first told
    anew: bool = False  # the last pause has thrown it back to step 0
    window_from: tuple[float, int] | None = None  # when the speed's measurement began, and the samples then
    measured: set[int] = field(default_factory=set)  # sizes of which the speed is known
    batch: AdaptingBatch | None = None  # how its batch adapts, as its run has said last
    beside: int | None = None  # the trainer with which it takes turns, 0: none; None: not known
    init_s: float | None = None  # of the newcomers that will join next
    finisher: str = ""  # the node of rank 0, once that has said that the work is done
    position_told: bool = False  # and where training stands then; not yet, if an earlier daemon heard it
    succeeded: bool = False  # and then ended with exit code 0
    ending: str = WORK_DONE  # why it ends, once it has succeeded
    failure: str = ""  # how its script failed after the loop on another node than rank 0's
    failed_in: int = 0  # and the membership in which that had trained
    reported: Progress | None = None
    problem: str = ""  # why it could not write its last checkpoint
    saved: int | None = None  # the step of the last checkpoint that is known to be whole on the disk
    pauses: Counter[tuple[int, str]] = field(
        default_factory=Counter
    )  # (generation, node) -> how many it told
    deaths: list[tuple[float, str]] = field(default_factory=list)  # when and where workers were lost of late
    failed: tuple[float, str] | None = None  # when its program failed last, and why
    told_metrics: bool = False  # that there are too many names of figures
    _workers: dict[str, WorkerView] = field(default_factory=dict, init=False)

    @property
    def workers(self) -> Mapping[str, WorkerView]:
        """Node -> worker. Only `put` and `drop` change which there are."""
        return self._workers

    def put(self, node: str, view: WorkerView) -> None:
        """Note a worker on a node, in place of an earlier one."""
        self._workers[node] = view
        self.by_node.put(node, self.id, view)

    def drop(self, node: str) -> WorkerView:
        """Remove and return the worker on a node: it is gone, or was never started."""
        self.by_node.drop(node, self.id)
        return self._workers.pop(node)

    def is_beside(self, other: int | None) -> bool:
        """Note the trainer with which it takes turns. False: its speed cannot be measured, as it takes turns
        and it is not known with whom."""
        if self.spec.takes_turns and other != self.beside:
            self.measured.clear()
            self.window_from = None
        self.beside = other
        return other is not None or not self.spec.takes_turns

    def adapts(self, batch: AdaptingBatch | None) -> None:
        """Note its batch. The speed with another one is another."""
        if (batch and batch.shape) != (self.batch and self.batch.shape):
            self.window_from = None
        self.batch = batch

    def begin(self, action: StartWorker, now: float) -> None:
        """Note a worker to be started."""
        self.put(
            action.node, WorkerView(action.generation, started_at=now, attempt=self._attempts(action, now))
        )

    def _attempts(self, action: StartWorker, now: float) -> int:
        """Failed starts before this one, by which it is put off. The engine counts failures
        that are the program's; workers that are killed again and again, for whatever reason, wait as well."""
        self.deaths = [(at, node) for at, node in self.deaths if now - at < RECENT_S]
        died = sum(node == action.node for _, node in self.deaths)
        return max(action.attempt, died - FREE_DEATHS)

    def died(self, now: float, node: str, failure: str) -> None:
        """Note that a worker was lost; `failure`: how its program failed, empty if that is not to blame."""
        self.deaths.append((now, node))
        if failure:
            self.failed = (now, failure)

    def failed_lately(self, now: float) -> str:
        """Reason if its program failed lately, else empty: it may start, fail and restart for a while."""
        if self.failed is None or self.succeeded or now - self.failed[0] >= FAILED_LATELY_S:
            return ""
        return f"its program failed {duration(now - self.failed[0])} ago: {self.failed[1]}"

    def lose(self, node: str) -> WorkerView:
        """Remove and return the worker on a node, which died; the next membership may be due to a loss."""
        view = self.drop(node)
        if view.phase != Phase.LEAVING:
            self.lost = self.lost or view.joined > 0
        return view

    def publish(self, action: Regroup) -> None:
        """Note a membership as the one that is published, and what it changes."""
        kind = self._change(action)
        self.lost = False
        self.pauses.clear()
        since = [own for own in self.kinds.items() if own[0] >= self.confirmed]
        self.kinds = dict(since[-MOST_KINDS:]) | {action.generation: kind}
        self.published, self.members = action.generation, action.members

    def _change(self, action: Regroup) -> PauseKind:
        newcomers = [n for n in action.members if n not in self.workers or not self.workers[n].joined]
        if newcomers:
            return PauseKind.JOIN if len(newcomers) < len(action.members) else PauseKind.RESTART
        if action.leaving:
            return PauseKind.LEAVE
        staying = self.workers.keys() & set(action.members)
        lost = self.lost or any(view.joined for n, view in self.workers.items() if n not in staying)
        return PauseKind.LOSS if lost else PauseKind.JOIN  # of newcomers that never were members

    def kind(self, generation: int) -> PauseKind:
        """Changes of a membership that became real, with those before it that a later one overtook.

        A newcomer may be ready before the survivors of a loss have met: the one pause is the loss's.
        """
        kind = self.kinds.get(generation, PauseKind.JOIN)
        since = [k for g, k in self.kinds.items() if self.confirmed < g <= generation]
        if kind != PauseKind.RESTART and PauseKind.LOSS in since:
            kind = self.kinds[generation] = PauseKind.LOSS
        return kind

    @property
    def finished(self) -> bool:
        """True if the work is done. Rank 0 may still run what its script has after the loop."""
        return self.succeeded or bool(self.finisher)

    @property
    def note(self) -> str:
        """Warning to its user of a script that is not ready for long, or has done its work and goes on; empty
        if there is none."""
        if self.finisher and not self.succeeded:
            return f"its work is done; its script runs what it has after its loop on {self.finisher}"
        if self.confirmed or self.members:
            return ""  # it has been ready before, elsewhere
        silent = sorted(n for n, v in self._workers.items() if v.silent and v.phase == Phase.STARTING)
        return f"on {', '.join(silent)} {self.silent_start}" if silent else ""

    @property
    def completed(self) -> bool:
        """True if rank 0 has ended well, and the last of the other members has ended."""
        at_work = (Phase.MEMBER, Phase.FINISHED)
        return self.succeeded and not any(view.phase in at_work for view in self._workers.values())

    @property
    def failed_after(self) -> str:
        """Its failure though rank 0 ends well; else empty. Where the others went on from a failure
        in a later membership, it was a loss."""
        return self.failure if self.failed_in >= self.confirmed else ""

    def has_left_loop(self, node: str, view: WorkerView, phase: Phase, reason: str) -> bool:
        """True if a worker that ended in this phase had said that the work is done, and was not told to leave
        since."""
        return phase == Phase.FINISHED

    def why_lost(self, view: WorkerView, code: int, reason: str) -> tuple[str, bool]:
        """Reason why a worker with this exit code is lost, and whether its program is to blame."""
        if view.overdue:
            return view.overdue, True
        if view.repeated:
            return REPEATED, False
        if code == 0:
            return self.fell_short(), True
        why = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
        return reason or why, -code not in FROM_OUTSIDE

    @property
    def has_told(self) -> bool:
        """True if its script is known to have reported its training."""
        return bool(self.confirmed or self.samples)

    def untold(self, node: str) -> str:
        """Reason not to run a script again that ended with exit code 0 on this node: it reports nothing, and
        its spec asks for samples. Empty if there is none."""
        if self.spec.work is None or self.has_told:
            return ""
        return self.untold_samples.say(node=node, samples=self.spec.work)

    def keep(self, kept: int | None) -> str:
        """Note the step of the last checkpoint, as no member has the state any more. Returns what is lost
        with that; empty if nothing is."""
        if kept is None:
            return ""
        self.saved = kept
        if kept >= self.committed:
            return ""
        what = f"its last checkpoint is of step {kept:,}" if kept else "it has no checkpoint yet"
        return f"{what}, and what it did after that, up to step {self.committed:,}, is lost"

    @property
    def left(self) -> float | None:
        """The samples that are left to do, as far as its script says."""
        of = self.reported.of if self.reported else None
        return None if of is None else float(max(0, of - self.samples))

    def left_early(self) -> str:
        """Message for a script that left its loop, and ended well, before all its epochs; else empty. It may
        have met what it waited for, or swallowed an error."""
        of = self.reported.of if self.reported else None
        if of is None or self.samples >= of:
            return ""
        return (
            f"its script left its loop after {self.samples:,} of {of:,} samples, and ended with exit code 0"
        )

    def fell_short(self) -> str:
        """The reason for a loss where a program ended with exit code 0 and work left."""
        if self.spec.work is None:
            return "the program ended by itself (exit code 0) while rank 0 went on"
        if self.spec.samples is None:
            return f"the program ended by itself before its progress was worth {self.spec.work} samples"
        return f"the program ended by itself after {self.samples} of {self.spec.samples} samples"
