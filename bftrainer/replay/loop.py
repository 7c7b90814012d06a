"""The replay loop: the engine fed from a log, on a virtual clock, with the simulated launcher."""

from __future__ import annotations

import heapq
import time as wall
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Protocol

from bftrainer.allocate import decide
from bftrainer.engine.due import PlansDue
from bftrainer.engine.state import State, Step
from bftrainer.engine.step import step
from bftrainer.model.events import (
    Event,
    Measured,
    NodesChanged,
    PlanDue,
    TrainerEnded,
    TrainerSubmitted,
    WorkersReady,
)
from bftrainer.model.policy import EngineSettings, WeightsBy
from bftrainer.model.problem import Plan, Problem
from bftrainer.ports import Clock, Emit
from bftrainer.replay.tally import Decision, Result, Tally, changed
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.workload import Submission

Progress = Callable[[float], None]
"""Called with the virtual time now and then."""
Simulate = Callable[[Emit, Clock], SimulatedLauncher]
"""Makes the launcher, which emits its events to the first argument."""


@dataclass(slots=True)
class VirtualClock:
    """Implements `ports.Clock`: stands still until its `time` (Unix seconds) is set."""

    time: float

    def now(self) -> float:
        """The virtual time (Unix seconds)."""
        return self.time

    def behind_s(self) -> float:
        """See `ports.Clock.behind_s`: there is no other clock."""
        return 0.0


class Observer(Protocol):
    """Receives everything that happens in a replay, in order; see `record.recorder`."""

    def wait(self, until: float, launcher: SimulatedLauncher) -> None:
        """Nothing changes before `until`, when the next event comes or the replay ends."""

    def note(self, event: Event, before: State, step: Step, launcher: SimulatedLauncher) -> None:
        """The engine has taken an event, and its actions have been performed."""


class NullObserver:
    """Observes nothing."""

    def wait(self, until: float, launcher: SimulatedLauncher) -> None:
        """Ignore that time passes."""

    def note(self, event: Event, before: State, step: Step, launcher: SimulatedLauncher) -> None:
        """Ignore an event."""


NULL_OBSERVER = NullObserver()


def replay(
    changes: Sequence[Event],
    workload: Sequence[Submission],
    settings: EngineSettings,
    begin: float,
    end: float,
    progress: Progress = lambda now: None,
    simulate: Simulate = SimulatedLauncher,
    observer: Observer = NULL_OBSERVER,
) -> Result:
    """Run the engine over [begin, end) (Unix seconds). Trainers submitted before `begin` wait at `begin`: the
    first decision is about all of them.

    `changes` are the changes of the pool and all other events from outside; the machine has the nodes that
    ever join. Trainers are numbered from 1 in the order of `workload`. `simulate` makes the launcher.

    Deterministic: the same arguments give the same result, wall times aside.
    """
    loop = _Loop(_machine(changes, settings), begin, simulate, observer, progress)
    for id_, submission in enumerate(workload, start=1):
        loop.emit(TrainerSubmitted(time=max(begin, submission.time), trainer=id_, spec=submission.spec))
    for change in changes:
        loop.emit(change)
    loop.emit(PlanDue(time=begin))
    loop.run(end)
    return Result(tally=loop.tally, trainers=loop.launcher.trainers, begin=begin, end=end)


def _machine(changes: Sequence[Event], settings: EngineSettings) -> State:
    """The state before anything has happened: how many nodes of each class there are is known."""
    nodes = frozenset(chain.from_iterable(e.joined for e in changes if isinstance(e, NodesChanged)))
    return State(settings=settings, machine=Counter(map(settings.class_of, nodes)))


class _Loop:
    """A replay under way: the events to come, the engine's state and the virtual time."""

    def __init__(
        self,
        state: State,
        begin: float,
        simulate: Simulate,
        observer: Observer,
        progress: Progress,
    ) -> None:
        self.tally = Tally()
        self.clock = VirtualClock(begin)
        self.launcher = simulate(self.emit, self.clock)
        self.launcher.class_of = state.settings.class_of
        self.launcher.tells_left = state.settings.weights_by is WeightsBy.WORK
        self._begin, self._observer, self._progress = begin, observer, progress
        self._agenda: list[tuple[float, int, int, Event]] = []  # time, priority, order of arrival
        self._arrivals = count()
        self._state, self._plans_due = state, PlansDue()

    def emit(self, event: Event) -> None:
        """An event to come, at its own time."""
        heapq.heappush(self._agenda, (event.time, event.priority, next(self._arrivals), event))

    def run(self, end: float) -> None:
        """Take all events before `end`."""
        while self._agenda and self._agenda[0][0] < end:
            event = self._valid(heapq.heappop(self._agenda)[3])
            if event is not None:
                self._take(event)
        self._pass_until(end)
        self.launcher.close()

    def _valid(self, event: Event) -> Event | None:
        """The event, unless it is one that the launcher predicted and that is wrong by now."""
        if isinstance(event, TrainerEnded) and not self.launcher.is_due(event):
            return None
        if isinstance(event, Measured):
            return self.launcher.measurement(event)
        return event

    def _take(self, event: Event) -> None:
        """Apply an event to launcher and engine, and then the engine's actions."""
        self._pass_until(event.time)
        before = self._state
        if isinstance(event, NodesChanged):
            self.launcher.lose(event.left)
            self.tally.lost(event, before)
        plan = event.time > self._begin or isinstance(event, PlanDue)
        outcome = step(before, event, self._solve, plan=plan)
        if outcome.ended is not None:
            self.launcher.forget(outcome.ended.trainer)
            self.tally.completed += 1
        if isinstance(event, TrainerSubmitted):
            self.launcher.add(event.trainer, event.spec)
        self.tally.stepped(event, before, outcome.state)
        if not isinstance(event, WorkersReady):  # which changes no trainer's nodes
            for _, trainer in changed(before, outcome.state):
                self.launcher.trainers[trainer.id].hold(len(trainer.nodes), event.time)
            self._progress(event.time)
        self.launcher.perform(outcome.actions)
        self._observer.note(event, before, outcome, self.launcher)
        self._state = outcome.state
        if (plan_due := self._plans_due.after(event, self._state)) is not None:
            self.emit(plan_due)

    def _pass_until(self, time: float) -> None:
        """Nothing happens before `time`."""
        self._observer.wait(time, self.launcher)
        self.tally.passed(time - self.clock.time, self._state)
        self.clock.time = time

    def _solve(self, problem: Problem) -> Plan:
        """The allocator's answer, which is timed and counted."""
        started = wall.perf_counter()
        plan = decide(problem, self._state.settings)
        seconds = wall.perf_counter() - started
        self.tally.decided(Decision(self.clock.time, problem.t_fwd_s), plan, seconds)
        return plan
