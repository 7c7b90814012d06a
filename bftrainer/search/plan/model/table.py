"""The simulator's means as tables: each stage's allocations, and what it takes to go from one to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bftrainer.search.plan.model.profile import Floats, Per
from bftrainer.search.plan.model.simulate import Simulator
from bftrainer.search.plan.model.step import PlanStep, allocations

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """Input of the exact planner. Index k is a stage; stage 0 comes from one state, `held` nodes.

    Attributes:
        steps: The allocations of each stage that can be part of a cheapest plan, fewest nodes first.
        nodes, seconds, cost: Of these.
        seconds_std: How much the seconds of a stage differ between draws.
        scaling_s, wait_s, growth: Seconds until new nodes are there, until they are ready, and the cost of
            both; a row for each allocation of the stage before, a column for each of the stage.
        wait_std: A bound on how much the wait differs between draws.
        held: Nodes that are there at the begin; they have no minimum charge.
        minimum_s: A node's minimum charge; 0 where functions are billed, whose minimum is part of `cost`.
        per_s: Cost of a node per second.
    """

    steps: tuple[tuple[PlanStep, ...], ...]
    nodes: tuple[Ints, ...]
    seconds: tuple[Floats, ...]
    seconds_std: tuple[Floats, ...]
    cost: tuple[Floats, ...]
    scaling_s: tuple[Floats, ...]
    wait_s: tuple[Floats, ...]
    growth: tuple[Floats, ...]
    wait_std: tuple[Floats, ...]
    held: int
    minimum_s: float
    per_s: float


def tabulate(simulator: Simulator) -> Table:
    """The tables of an experiment.

    A stage holds the nodes that it uses, or more for a later one: as many as that one uses, then it need not
    wait, or as many as any other stage uses, then fewer are new. Between two such numbers each stage uses
    all of the nodes or none, so what is best for one of them is best for all.
    """
    billing = simulator.profile.billing
    own = [_own(simulator, k) for k in range(len(simulator.experiment.stages))]
    used = {step.nodes for options in own for step in options}
    steps: list[tuple[PlanStep, ...]] = []
    for k, options in enumerate(own):
        most = max((step.nodes for others in own[k + 1 :] for step in others), default=0)
        steps.append(_with_held(simulator, k, options, {nodes for nodes in used if nodes <= most}))
    nodes = [np.array([step.nodes for step in options]) for options in steps]
    means = [np.array([_means(simulator, k, s) for s in options]).T for k, options in enumerate(steps)]
    before = [np.array([simulator.held]), *nodes[:-1]]
    growths = [_growth(simulator, k, before[k], nodes[k]) for k in range(len(nodes))]
    return Table(
        steps=tuple(steps),
        nodes=tuple(nodes),
        seconds=tuple(seconds for seconds, _ in means),
        seconds_std=tuple(
            np.array([simulator.stage(k, s)[0].std() for s in options]) for k, options in enumerate(steps)
        ),
        cost=tuple(cost for _, cost in means),
        scaling_s=tuple(scale for scale, _, _, _ in growths),
        wait_s=tuple(scale + init for scale, init, _, _ in growths),
        growth=tuple(price for _, _, price, _ in growths),
        wait_std=tuple(std for _, _, _, std in growths),
        held=simulator.held,
        minimum_s=billing.minimum_s if billing.per is Per.NODE else 0.0,
        per_s=billing.per_s,
    )


def _means(simulator: Simulator, k: int, step: PlanStep) -> tuple[float, float]:
    """Mean seconds and cost of a stage on nodes that are there."""
    billing = simulator.profile.billing
    seconds, busy = simulator.means(k, step)
    paid = seconds * step.nodes if billing.per is Per.NODE else busy / simulator.profile.node_workers
    return seconds, paid * billing.per_s


def _own(simulator: Simulator, k: int) -> list[PlanStep]:
    """The allocations of a stage that no other one equals: as fast, on as few nodes, as cheap a function."""
    options = allocations(simulator.experiment.stages[k], simulator.profile)
    return _undominated(simulator, k, sorted(options, key=lambda step: step.nodes))


def _undominated(simulator: Simulator, k: int, options: Sequence[PlanStep]) -> list[PlanStep]:
    """Return the allocations, nodes ascending, that are faster, or as functions cheaper, than all before."""
    if simulator.profile.billing.per is Per.FUNCTION:
        return _undominated_functions(simulator, k, options)
    found: list[PlanStep] = []
    best = math.inf
    for step in sorted(options, key=lambda step: (step.nodes, simulator.at_least(k, step))):
        if simulator.at_least(k, step) >= best or (seconds := simulator.means(k, step)[0]) >= best:
            continue  # most are not simulated
        best = seconds
        if found and found[-1].nodes == step.nodes:
            found.pop()
        found.append(step)
    return found


def _undominated_functions(simulator: Simulator, k: int, options: Sequence[PlanStep]) -> list[PlanStep]:
    found: list[tuple[float, float, PlanStep]] = []
    for step in sorted(options, key=lambda step: (step.nodes, _means(simulator, k, step))):
        seconds, cost = _means(simulator, k, step)
        if not any(s <= seconds and c <= cost for s, c, _ in found):
            found.append((seconds, cost, step))
    return [step for _, _, step in found]


def _with_held(
    simulator: Simulator, k: int, options: Sequence[PlanStep], numbers: set[int]
) -> tuple[PlanStep, ...]:
    """The allocations, and those that hold one of `numbers` of nodes and use fewer: all that none equals
    that fits, too."""
    found = {(step.nodes, step.parallel, step.workers): step for step in options}
    for nodes in numbers:
        held = [replace(step, nodes=nodes) for step in options if step.nodes <= nodes]
        for step in _undominated(simulator, k, held):
            found.setdefault((nodes, step.parallel, step.workers), step)
    return tuple(found[key] for key in sorted(found))


def price(table: Table, path: Sequence[int]) -> tuple[float, float]:
    """Seconds and cost of one plan, given by the index of its allocation in each stage."""
    stays = [
        [table.held, math.inf]
    ]  # nodes by when they came, and for how long they are paid; the last to come
    seconds, cost, at = 0.0, 0.0, 0  # leaves first
    for k, to in enumerate(path):
        nodes, held = int(table.nodes[k][to]), sum(int(count) for count, _ in stays)
        cost += _given_back(table, stays, held - nodes)
        scale = float(table.scaling_s[k][at, to])
        ready = float(table.wait_s[k][at, to]) - scale + float(table.seconds[k][to])
        for stay in stays:
            stay[1] += scale + ready
        stays.append([max(0, nodes - held), ready])
        seconds += scale + ready
        cost += float(table.growth[k][at, to] + table.cost[k][to])
        at = to
    return seconds, cost + _given_back(table, stays, int(table.nodes[-1][path[-1]]))


def _given_back(table: Table, stays: list[list[float]], count: int) -> float:
    """Take `count` nodes away, and return what their minimum costs in addition."""
    cost = 0.0
    for stay in reversed(stays):
        leaving = min(max(0, count), stay[0])
        stay[0] -= leaving
        count -= int(leaving)
        cost += leaving * max(0.0, table.minimum_s - stay[1]) * table.per_s
    return cost


def _growth(simulator: Simulator, k: int, before: Ints, after: Ints) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean seconds of SCALE and INIT between each two allocations, their cost with that of the data, and how
    much the seconds differ at most."""
    billing = simulator.profile.billing
    new = np.maximum(0, after[None, :] - before[:, None])
    alone, longest = simulator.scaling(k, 1)[0], simulator.init_longest(k)
    scale = np.where(new > 0, alone.mean(), 0.0)
    init = np.concatenate([[0.0], longest.mean(axis=0)])[new]
    std = np.where(new > 0, alone.std(), 0.0) + np.concatenate([[0.0], longest.std(axis=0)])[new]
    price = new * billing.fetch
    if billing.per is Per.NODE:
        kept = np.minimum(before[:, None], after[None, :])
        price = price + (kept * (scale + init) + new * init) * billing.per_s
    return scale, init, price, std
