"""Replay: the engine fed from a log, with a virtual clock and the simulated launcher."""

from __future__ import annotations

import heapq
import math
import time as wall
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import fmean
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bftrainer.allocate import decide
from bftrainer.engine.state import State, Step
from bftrainer.engine.step import step as engine_step
from bftrainer.model.events import Event, Measured, NodesChanged, TrainerEnded, TrainerSubmitted, WorkersReady
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.trainer import RescaleCosts, Trainer
from bftrainer.replay.trainers.simulated import SimulatedLauncher, SimulatedTrainer
from bftrainer.replay.workload import Submission

Progress = Callable[[float], None]
"""Called with the virtual time now and then."""
Simulate = Callable[[Callable[[Event], None]], SimulatedLauncher]
"""Makes the launcher, which emits its events to what it is called with."""


class Observer(Protocol):
    """Is told of everything that happens in a replay, in order; see `record`."""

    def wait(self, until: float, launcher: SimulatedLauncher) -> None:
        """Nothing changes before `until`, when the next event comes or the replay ends."""

    def note(self, event: Event, before: State, step: Step, launcher: SimulatedLauncher) -> None:
        """An event has been taken in, and its actions have been performed."""


class Nobody:
    """Observes nothing."""

    def wait(self, until: float, launcher: SimulatedLauncher) -> None: ...

    def note(self, event: Event, before: State, step: Step, launcher: SimulatedLauncher) -> None: ...


NOBODY = Nobody()


@dataclass(slots=True)
class Tally:
    """What is counted while a replay runs.

    `decided` has the time of every decision and the T_fwd in which it believed that nobody leaves,
    `preempted` the times at which trainers lost nodes.
    """

    events: int = 0
    rescales: int = 0
    preemptions: int = 0
    completed: int = 0
    node_s: float = 0.0
    idle_node_s: float = 0.0
    decision_s: list[float] = field(default_factory=list)
    unproven: int = 0
    decided: list[tuple[float, float]] = field(default_factory=list)
    preempted: list[float] = field(default_factory=list)

    def waited(self, seconds: float, state: State) -> None:
        """So long, nothing changed."""
        self.node_s += seconds * len(state.pool)
        held = sum(len(t.nodes) for t in state.active.values())
        self.idle_node_s += seconds * (len(state.pool) - held)

    def lost(self, event: NodesChanged, state: State) -> None:
        """Nodes leave, from the trainers that have them."""
        hit = sum(not event.left.isdisjoint(t.nodes) for t in state.active.values())
        self.preemptions += hit
        if hit:
            self.preempted.append(event.time)

    @property
    def refuted(self) -> npt.NDArray[np.bool_]:
        """Of each decision, whether a trainer lost nodes within T_fwd after it."""
        decided = np.array(self.decided).reshape(-1, 2)
        losses = np.array([*self.preempted, math.inf])
        following = losses[np.searchsorted(losses, decided[:, 0], side="right")]
        return np.asarray(following <= decided.sum(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished replay: its tally and every simulated trainer."""

    tally: Tally
    runs: dict[int, SimulatedTrainer]
    begin: float
    end: float

    @property
    def samples(self) -> float:
        return sum(run.samples for run in self.runs.values())


def replay(
    changes: Sequence[Event],
    workload: Sequence[Submission],
    settings: EngineSettings,
    begin: float,
    end: float,
    progress: Progress = lambda now: None,
    simulate: Simulate = SimulatedLauncher,
    observer: Observer = NOBODY,
) -> Result:
    """SimulatedTrainer the engine over [begin, end). Trainers submitted before `begin` wait at `begin`.

    `changes` are the pool's, and whatever else comes from outside; trainers are numbered from 1 in
    the order of `workload`. `simulate` makes the launcher.

    Deterministic: the same arguments give the same result, wall times aside.
    """
    heap: list[tuple[float, int, int, Event]] = []
    sequence = count()

    def emit(event: Event) -> None:
        heapq.heappush(heap, (event.time, event.priority, next(sequence), event))

    for id_, submission in enumerate(workload, start=1):
        emit(TrainerSubmitted(time=max(begin, submission.time), trainer=id_, spec=submission.spec))
    for change in changes:
        emit(change)
    tally = Tally()
    launcher = simulate(emit)
    state = State(settings=settings)

    def solve(problem: Problem) -> Plan:
        started = wall.perf_counter()
        plan = decide(problem, settings)
        tally.decision_s.append(wall.perf_counter() - started)
        tally.unproven += not plan.proven
        tally.decided.append((now, problem.t_fwd_s))
        return plan

    now = begin
    while heap and heap[0][0] < end:
        event = heapq.heappop(heap)[3]
        if isinstance(event, TrainerEnded) and not launcher.over(event):
            continue
        if isinstance(event, Measured):
            told = launcher.told(event)
            if told is None:
                continue
            event = told
        observer.wait(event.time, launcher)
        tally.waited(event.time - now, state)
        now = event.time
        if isinstance(event, NodesChanged):
            launcher.lose(event.left, now)
            tally.lost(event, state)
        outcome = engine_step(state, event, solve)
        if outcome.ended is not None:
            launcher.end(outcome.ended.trainer, now)
            tally.completed += 1
        if isinstance(event, TrainerSubmitted):
            launcher.submit(event.trainer, event.spec, now)
        if not isinstance(event, WorkersReady):
            tally.events += not isinstance(event, Measured)
            for old, trainer in changed(state, outcome.state):
                tally.rescales += _rescaled(old, trainer, event)
                launcher.runs[trainer.id].hold(len(trainer.nodes), now)
            progress(now)
        launcher.perform(outcome.actions, now)
        observer.note(event, state, outcome, launcher)
        state = outcome.state
    observer.wait(end, launcher)
    tally.waited(end - now, state)
    launcher.close(end)
    return Result(tally=tally, runs=launcher.runs, begin=begin, end=end)


def changed(before: State, after: State) -> Iterator[tuple[Trainer | None, Trainer]]:
    """The trainers that a step changed, of those that may hold nodes: as they were, as they are."""
    for id_, trainer in after.active.items():
        old = before.active.get(id_)
        if old is not trainer:
            yield old, trainer


def _rescaled(old: Trainer | None, trainer: Trainer, event: Event) -> bool:
    """Whether the decision gave a trainer another number of nodes than the event left it."""
    left = event.left if isinstance(event, NodesChanged) else frozenset[str]()
    return len(trainer.nodes) != (len(old.nodes - left) if old is not None else 0)


# --- metrics -------------------------------------------------------------------------------------


def dedicated_samples(
    workload: Sequence[Submission], settings: EngineSettings, nodes: float, begin: float, end: float
) -> float:
    """A_s: what these trainers would process in [begin, end) on N_eq dedicated `nodes` (section 4.1).

    The same queue runs under the optimal static allocation, without rescale costs, on the whole
    numbers of nodes below and above; in between it is interpolated.
    """
    low = math.floor(nodes)
    free = [
        replace(submission, spec=replace(submission.spec, costs=RescaleCosts())) for submission in workload
    ]
    exact = replace(settings, allocator="knapsack")

    def on(n: int) -> float:
        names = frozenset(f"dedicated{i:06}" for i in range(n))
        changes = [NodesChanged(time=begin, joined=names)] if n else []
        return replay(changes, free, exact, begin, end).samples

    below = on(low)
    if nodes == low:
        return below
    return below + (nodes - low) * (on(low + 1) - below)


def metrics(
    result: Result, workload: Sequence[Submission], settings: EngineSettings, jct_first: int | None = None
) -> dict[str, object]:
    """The figures of a replay; the keys are a contract with its readers.

    `efficiency_u` is U = A_e / A_s (section 4.1.2); `linear_efficiency` is E = A_e / (node-time * O(1)),
    each trainer measured by its own O(1); `*_node_hours` sum up where node-time went, `stall` and
    `init` being what rescaling cost and `idle` what no trainer held. `rescale_samples` and
    `preemption_samples` are stalls times the speed before them, see `SimulatedTrainer`;
    `decisions_preempted` counts those decisions after which a trainer lost nodes within T_fwd.

    `runtime_h` is from a trainer's first node, `turnaround_h` from its submission to its end, over
    those that completed. `mean_*_first_h` are over the first `jct_first` trainers of the queue, so that
    runs that complete more or fewer trainers can be compared; None unless all of these completed.
    """
    tally, span = result.tally, result.end - result.begin
    equivalent = tally.node_s / span
    static = dedicated_samples(workload, settings, equivalent, result.begin, result.end)
    runs = result.runs.values()
    decisions = sorted(tally.decision_s)
    completed = {id_: run for id_, run in result.runs.items() if run.completed}
    models: dict[str, list[float]] = {}
    for id_, run in completed.items():
        models.setdefault(workload[id_ - 1].model, []).append(run.runtime_h)
    first = [completed.get(id_) for id_ in range(1, min(jct_first or 0, len(workload)) + 1)]
    return {
        "efficiency_u": result.samples / static if static else 0.0,
        "linear_efficiency": sum(run.linear_node_s(run.samples) for run in runs) / tally.node_s
        if tally.node_s
        else 0.0,
        "samples": result.samples,
        "node_hours": tally.node_s / 3600,
        "equivalent_nodes": equivalent,
        "events": tally.events,
        "completed": tally.completed,
        "rescales": tally.rescales,
        "preemptions": tally.preemptions,
        "decisions": len(decisions),
        "decisions_preempted": int(tally.refuted.sum()),
        "rescale_samples": sum(run.rescaled_samples for run in runs),
        "preemption_samples": sum(run.preempted_samples for run in runs),
        "stall_node_hours": sum(run.stall_node_s for run in runs) / 3600,
        "init_node_hours": sum(run.init_node_s for run in runs) / 3600,
        "idle_node_hours": tally.idle_node_s / 3600,
        "unproven_decisions": tally.unproven,
        "runtime_h": _distribution([run.runtime_h for run in completed.values()]),
        "turnaround_h": _distribution([run.turnaround_h for run in completed.values()]),
        "runtime_by_model_h": {model: fmean(hours) for model, hours in sorted(models.items()) if model},
        "mean_runtime_first_h": _mean_of_all(first, lambda run: run.runtime_h),
        "mean_turnaround_first_h": _mean_of_all(first, lambda run: run.turnaround_h),
        "decision_ms": {
            "p50": _quantile(decisions, 0.50) * 1e3,
            "p99": _quantile(decisions, 0.99) * 1e3,
            "max": (decisions[-1] if decisions else 0.0) * 1e3,
        },
    }


def _mean_of_all(
    runs: Sequence[SimulatedTrainer | None], value: Callable[[SimulatedTrainer], float]
) -> float | None:
    """The mean over all runs; None where there is none, or where one is missing."""
    values = [value(run) for run in runs if run is not None]
    return fmean(values) if values and len(values) == len(runs) else None


def _distribution(values: Sequence[float]) -> dict[str, float | None]:
    ordered = sorted(values)
    found = {f"p{round(100 * q)}": _quantile(ordered, q) if values else None for q in (0.5, 0.9, 0.99)}
    return {"mean": fmean(values) if values else None, **found}


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0
