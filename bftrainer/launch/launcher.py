"""The base of all launchers: workers behind agents.

A launcher is a synchronous state machine between the engine and the agents. It turns actions into messages
and messages into events; its only I/O is `link.send`. How a membership becomes real differs from launcher to
launcher.

Fencing: a worker is identified by trainer, node, the generation that started it and the run that it takes
part in. Reports of an earlier one are dropped. Progress counts only from generations that no member has left
behind (`confirmed`).
"""

from __future__ import annotations

import logging
import time as wall
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import ClassVar, TypeVar

from bftrainer.launch import messages
from bftrainer.launch.deadlines import Deadlines, TimeLimits
from bftrainer.launch.ends import Ends
from bftrainer.launch.job import LaunchedTrainer, WorkerLimits, WorkerView
from bftrainer.launch.known import KnownTrainers
from bftrainer.launch.messages import Folders
from bftrainer.launch.reports import NO_BOUNDS, Reports
from bftrainer.model.actions import Action, Regroup, StartWorker, StopWorker
from bftrainer.model.trainer import TrainerSpec
from bftrainer.ports import Emit, Journal, Link
from bftrainer.wire.messages import from_agent as said
from bftrainer.wire.messages.from_agent import Report, Running
from bftrainer.wire.phases import ENDED, Phase

log = logging.getLogger(__name__)

FOLLOWERS_GRACE_S = 2.0
"""The grace time of ranks other than 0, which have nothing to write down."""

NO_LIMITS = TimeLimits()

T = TypeVar("T", bound=LaunchedTrainer)


class AgentLauncher(Ends[T]):
    """All of a launcher but `_carry_out`: how a membership becomes real.

    `perform` takes the engine's actions; the agents' messages come in through `agent_up`, `agent_down` and
    `reported`. Methods that begin with an underscore are for launchers to extend.
    """

    gated: ClassVar[bool] = False
    """True if workers wait, warm, before their script for a `go` with its environment."""

    trainer_type: type[T]
    """Type of the launcher's record of a trainer."""

    def __init__(
        self,
        link: Link,
        emit: Emit,
        journal: Journal,
        folders: Folders,
        *,
        grace_s: float,
        write_s: float = 0.0,
        warm_pool: bool = True,
        limits: TimeLimits = NO_LIMITS,
        bounds: WorkerLimits = NO_BOUNDS,
        clock: Callable[[], float] = wall.time,
    ) -> None:
        self._link, self._emit, self._folders = link, emit, folders
        self._grace_s, self._clock = grace_s, clock
        self._how = messages.StartConfig(
            grace_s=grace_s, write_s=write_s, gated=self.gated, warm=warm_pool, metrics=bounds.metrics
        )
        self._reports = Reports(emit, journal, clock, bounds)
        self.known = KnownTrainers[T](self._forgotten)  # of which the daemon asks, too
        self._deadlines = Deadlines[T](limits, link, self.known, partial(self._gone, blame=True))

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
        self.known.add(
            self.trainer_type(
                id=trainer,
                spec=spec,
                by_node=self.known.by_node,
                published=published,
                members=members,
                confirmed=published,
                committed=step,
                samples=samples,
            )
        )

    def _forgotten(self, trainer: int) -> None:
        """End what the launcher itself runs for a trainer that has just been forgotten."""

    def note(self, trainer: int) -> str:
        """Note to a trainer's user on its start or its progress; empty if there is none."""
        launched = self.known.get(trainer)
        if launched is None:
            return ""
        now = launched.note or self._reports.standstill(launched)
        return "; ".join(filter(None, (now, launched.failed_lately(self._clock()))))

    def close(self) -> None:
        """End what the launcher itself runs: the daemon stops."""

    def perform(self, action: Action) -> None:
        """Carry out an action. Raises `KeyError` for an unknown trainer."""
        launched = self.known[action.trainer]
        match action:
            case StartWorker():
                if not launched.succeeded:
                    launched.begin(action, self._clock())
                    self._send_start(launched, action.node)
            case StopWorker():
                self._stop(launched, action.node)
            case Regroup():
                launched.publish(action)
                self._deadlines.changed(launched)
                for node in action.leaving:
                    if node in launched.workers:
                        self._dismiss(launched, node)
                self._carry_out(launched, action)
        self._settle()

    # what agents tell

    def agent_up(self, node: str, inventory: Sequence[Running], wanted: Collection[int]) -> None:
        """An agent has connected with what runs on its node, of which only `wanted` trainers may.

        Takes over the workers that should be there, stops the others, and sends what waited for the agent.
        """
        # the newest of each trainer: an agent may have more, of which the daemon has not heard the end
        there = {found.trainer: found for found in sorted(inventory, key=lambda found: found.generation)}
        for trainer, found in there.items():
            launched = self.known.get(trainer)
            if launched is None or trainer not in wanted:
                self._link.send(node, messages.stop(trainer, self._grace_s))
            elif node in launched.workers:
                self._caught_up(launched, node, found)
            else:
                self._take_over(launched, node, found)
        for launched, view in self.known.at(node):
            if launched.id not in wanted:
                launched.drop(node)  # what it waited for has been called off
            elif not view.sent:
                self._send_start(launched, node)
            elif view.phase not in ENDED and not _has(there.get(launched.id), view):
                self._gone(launched, node, "its agent does not have it", blame=False)
        self._settle()
        self._warm(node)

    def _take_over(self, launched: T, node: str, found: Running) -> None:
        """A worker that an earlier daemon has started goes on."""
        view = WorkerView(found.generation, found.phase, found.joined, self._clock(), sent=True)
        view.run, view.workers = found.run, found.workers
        launched.put(node, view)
        if found.phase == Phase.FINISHED and self._is_rank_0(launched, node):
            launched.finisher = node
        self._deadlines.taken_over(launched, node)

    def _caught_up(self, launched: T, node: str, found: Running) -> None:
        """A connection broke and came back: make good for the reports that were lost."""
        view = launched.workers[node]
        if view.generation == found.generation and (view.phase, found.phase) == (Phase.STARTING, Phase.READY):
            self._ready(launched, node, view)

    def agent_down(self, node: str, *, blame: bool = False, waiting: bool = True) -> None:
        """A node is gone with all on it, or with what was to start there; see `Workers`. Idempotent."""
        for launched, view in self.known.at(node):
            if not waiting and not view.sent:
                continue
            if blame and view.sent and launched.finisher in ("", node):
                self._gone(launched, node, "its pilot died with it, not for the first time", blame=True)
            else:
                launched.lose(node)
                if launched.finisher == node:
                    self._repeat(launched)
                self._vacated(launched)
        self._settle()

    def reported(self, node: str, report: Report) -> None:
        """A worker on `node` has reported something, or its agent about it."""
        launched = self.known.get(report.trainer)
        view = launched.workers.get(node) if launched else None
        if launched is None or view is None or (report.started, report.run) != (view.generation, view.run):
            return  # an earlier worker: fenced off
        if not self._link.serves(node, launched.spec):
            return  # another user's agent, which has no business with this trainer
        if isinstance(report.said, said.Exited):
            self._exited(launched, node, view, report.said)
        elif view.phase != Phase.LEAVING:
            self._heard(launched, node, view, report.said)
        else:
            self._heard_leaving(launched, view, report.said)
        self._settle()

    def _heard(self, launched: T, node: str, view: WorkerView, what: said.FromWorker) -> None:
        """A worker that has not been told to leave has reported something."""
        if not isinstance(what, said.Kv):  # which a thread of its own says, also where the script hangs
            view.heard = max(view.heard, what.generation)
        current = what.generation >= launched.confirmed
        match what:
            case said.Ready():
                self._ready(launched, node, view)
            case said.Joined() if view.joined < what.generation <= launched.published:
                self._reports.joined(launched, node, view, what)
                self._deadlines.progressed(launched)
            case said.CaughtUp():
                self._reports.caught_up(launched, node, what)
            case said.Progress() if current:
                self._reports.progressed(launched, what)
                self._deadlines.progressed(launched)
            case said.FreshMetrics() if current:
                self._reports.metrics(launched, what)
            case said.Warned():
                self._reports.warned(launched, what)
            case said.Finished() if current:
                self._finished(launched, node, view, what)
            case said.Failed() if what.generation == launched.published:
                self._reports.failed(launched, what.reason)

    def _heard_leaving(self, launched: T, view: WorkerView, what: said.FromWorker) -> None:
        """One that must leave has reported something. Where it is rank 0 and the work is done, it may be
        what the whole training has come to."""
        match what:
            case said.Left():
                view.left = True
            case said.FreshMetrics() if what.generation >= launched.confirmed:
                self._reports.metrics(launched, what)

    # actions into messages

    def _settle(self) -> None:
        """After an action or a report: forget the trainers that have ended and have no worker left."""
        self.known.prune()

    def _send_start(self, launched: T, node: str) -> None:
        """Have a worker started, now or when its agent connects; not while rank 0 runs what comes after the
        work."""
        if self._link.serves(node, launched.spec) and not launched.finished:
            view = launched.workers[node]
            view.sent, view.workers = True, launched.spec.workers or max(1, self._link.devices(node))
            self._link.send(node, messages.start(launched, node, self._folders, self._how))
            self._deadlines.starts(launched, node, launched.slow_start)

    def _warm(self, node: str) -> None:
        """Tell an agent of one program that may be started, so that it does the imports before.

        One is enough: agents keep one warm process.
        """
        spec = self.known.may_start(lambda own: self._link.serves(node, own)) if self._how.warm else None
        if spec is not None:
            self._link.send(node, messages.warm(spec))

    @abstractmethod
    def _carry_out(self, launched: T, action: Regroup) -> None:
        """Make a membership real, now that it is the published one."""

    # messages into events

    def _ready(self, launched: T, node: str, view: WorkerView) -> None:
        if view.phase == Phase.STARTING:
            view.phase = Phase.READY
            self._reports.ready(launched, node, view)


def _has(found: Running | None, view: WorkerView) -> bool:
    """True if an agent has this worker, not an earlier one as the order to start it was lost."""
    return found is not None and found.generation >= view.generation
