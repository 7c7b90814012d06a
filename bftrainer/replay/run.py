"""Replay: the engine fed from a log, with a virtual clock and the simulated launcher."""

from __future__ import annotations

import heapq
import math
import time as wall
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from bftrainer import curve, engine
from bftrainer.allocate import decide
from bftrainer.model import (
    EngineSettings,
    Event,
    Measured,
    NodesChanged,
    Plan,
    Problem,
    RescaleCosts,
    TrainerEnded,
    TrainerSubmitted,
    WorkersReady,
)
from bftrainer.replay.simulate import Run, SimulatedLauncher
from bftrainer.replay.workload import Submission

Progress = Callable[[float], None]
"""Called with the virtual time now and then."""


@dataclass(slots=True)
class Tally:
    """What is counted while a replay runs."""

    events: int = 0
    rescales: int = 0
    preemptions: int = 0
    completed: int = 0
    node_s: float = 0.0
    idle_node_s: float = 0.0
    decision_s: list[float] = field(default_factory=list)
    unproven: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished replay: its tally and every simulated trainer."""

    tally: Tally
    runs: dict[int, Run]
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
    simulate: Callable[[Callable[[Event], None]], SimulatedLauncher] = SimulatedLauncher,
) -> Result:
    """Run the engine over [begin, end). Trainers submitted before `begin` wait at `begin`.

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
    state = engine.State(settings=settings)

    def solve(problem: Problem) -> Plan:
        started = wall.perf_counter()
        plan = decide(problem, settings)
        tally.decision_s.append(wall.perf_counter() - started)
        tally.unproven += not plan.proven
        return plan

    now, idle = begin, 0
    while heap and heap[0][0] < end:
        event = heapq.heappop(heap)[3]
        if isinstance(event, TrainerEnded) and not launcher.over(event):
            continue
        if isinstance(event, Measured):
            event = launcher.told(event)
        tally.node_s += (event.time - now) * len(state.pool)
        tally.idle_node_s += (event.time - now) * idle
        now = event.time
        if isinstance(event, NodesChanged):
            launcher.lose(event.left, now)
            tally.preemptions += sum(not event.left.isdisjoint(t.nodes) for t in state.active.values())
        outcome = engine.step(state, event, solve)
        if outcome.ended is not None:
            launcher.end(outcome.ended.trainer, now)
            tally.completed += 1
        if isinstance(event, TrainerSubmitted):
            launcher.submit(event.trainer, event.spec, now)
        if not isinstance(event, WorkersReady):
            tally.events += 1
            tally.rescales += _rescaled(state, outcome.state, event)
            progress(now)
        launcher.perform(outcome.actions, now)
        state = outcome.state
        idle = len(state.pool) - sum(len(t.nodes) for t in state.active.values())
    tally.node_s += (end - now) * len(state.pool)
    tally.idle_node_s += (end - now) * idle
    launcher.close(end)
    return Result(tally=tally, runs=launcher.runs, begin=begin, end=end)


def _rescaled(before: engine.State, after: engine.State, event: Event) -> int:
    """How many trainers the decision gave another number of nodes than they were left with."""
    left = event.left if isinstance(event, NodesChanged) else frozenset[str]()
    n = 0
    for id_, trainer in after.active.items():
        old = before.active.get(id_)
        if old is not trainer:
            n += len(trainer.nodes) != (len(old.nodes - left) if old is not None else 0)
    return n


# --- metrics -------------------------------------------------------------------------------------


def dedicated_samples(result: Result, workload: Sequence[Submission], settings: EngineSettings) -> float:
    """A_s: what the same trainers would process in the same time on N_eq dedicated nodes (section 4.1).

    The same queue runs under the optimal static allocation, without rescale costs, on the whole
    numbers of nodes below and above N_eq; in between it is interpolated.
    """
    span = result.end - result.begin
    equivalent = result.tally.node_s / span
    low = math.floor(equivalent)
    free = [
        Submission(submission.time, replace(submission.spec, costs=RescaleCosts())) for submission in workload
    ]
    exact = replace(settings, allocator="knapsack")

    def on(n: int) -> float:
        names = frozenset(f"dedicated{i:06}" for i in range(n))
        changes = [NodesChanged(time=result.begin, joined=names)] if n else []
        return replay(changes, free, exact, result.begin, result.end).samples

    below = on(low)
    if equivalent == low:
        return below
    return below + (equivalent - low) * (on(low + 1) - below)


def metrics(result: Result, workload: Sequence[Submission], settings: EngineSettings) -> dict[str, object]:
    """The figures of a replay; the keys are a contract with its readers.

    `efficiency_u` is U = A_e / A_s (section 4.1.2); `linear_efficiency` is E = A_e / (node-time * O(1)),
    each trainer measured by its own O(1); `*_node_hours` sum up where node-time went, `stall` and
    `init` being what rescaling cost and `idle` what no trainer held.
    """
    tally, span = result.tally, result.end - result.begin
    static = dedicated_samples(result, workload, settings)
    ones = sum(run.samples / curve.rate(run.spec.curve or (), 1) for run in result.runs.values())
    decisions = sorted(tally.decision_s)
    return {
        "efficiency_u": result.samples / static if static else 0.0,
        "linear_efficiency": ones / tally.node_s if tally.node_s else 0.0,
        "samples": result.samples,
        "node_hours": tally.node_s / 3600,
        "equivalent_nodes": tally.node_s / span,
        "events": tally.events,
        "completed": tally.completed,
        "rescales": tally.rescales,
        "preemptions": tally.preemptions,
        "stall_node_hours": sum(run.stall_node_s for run in result.runs.values()) / 3600,
        "init_node_hours": sum(run.init_node_s for run in result.runs.values()) / 3600,
        "idle_node_hours": tally.idle_node_s / 3600,
        "unproven_decisions": tally.unproven,
        "decision_ms": {
            "p50": _quantile(decisions, 0.50) * 1e3,
            "p99": _quantile(decisions, 0.99) * 1e3,
            "max": (decisions[-1] if decisions else 0.0) * 1e3,
        },
    }


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0
