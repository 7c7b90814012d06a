"""The simulator's means as tables: each stage's allocations, and what it takes to go from one to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bftrainer.search.plan.profile import Floats, Per
from bftrainer.search.plan.simulate import Simulator
from bftrainer.search.plan.step import Step, allocations

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """What the exact planner computes with. Index k is a stage; stage 0 comes from one state, `held` nodes.

    Attributes:
        steps: The allocations of each stage that can be part of a cheapest plan, fewest nodes first.
        nodes, seconds, cost: Of these.
        scaling_s, init_s, growth: Seconds until new nodes are there, until they are ready, and the cost of
            both; a row for each allocation of the stage before, a column for each of the stage.
        held: Nodes that are there at the begin; they have no minimum charge.
        minimum_s: Of a node; 0 where functions are billed, whose minimum is part of `cost`.
        per_s: What a node costs a second.
    """

    steps: tuple[tuple[Step, ...], ...]
    nodes: tuple[Ints, ...]
    seconds: tuple[Floats, ...]
    cost: tuple[Floats, ...]
    scaling_s: tuple[Floats, ...]
    init_s: tuple[Floats, ...]
    growth: tuple[Floats, ...]
    held: int
    minimum_s: float
    per_s: float


def tabulate(simulator: Simulator) -> Table:
    """The tables of an experiment."""
    billing, profile = simulator.profile.billing, simulator.profile
    by_node = billing.per is Per.NODE
    steps, nodes, seconds, cost = [], [], [], []
    for k, stage in enumerate(simulator.experiment.stages):
        options = allocations(stage, profile)
        means = [(simulator.stage(k, step)[0].mean(), simulator.stage(k, step)[1].mean()) for step in options]
        prices = [
            (s * step.nodes if by_node else busy / profile.node_workers) * billing.per_s
            for step, (s, busy) in zip(options, means, strict=True)
        ]
        chosen = _efficient([step.nodes for step in options], [s for s, _ in means], prices)
        steps.append(tuple(options[i] for i in chosen))
        nodes.append(np.array([options[i].nodes for i in chosen]))
        seconds.append(np.array([means[i][0] for i in chosen]))
        cost.append(np.array([prices[i] for i in chosen]))
    growths = [
        _growth(simulator, k, before, nodes[k])
        for k, before in enumerate([np.array([simulator.held]), *nodes[:-1]])
    ]
    return Table(
        steps=tuple(steps),
        nodes=tuple(nodes),
        seconds=tuple(seconds),
        cost=tuple(cost),
        scaling_s=tuple(scale for scale, _, _ in growths),
        init_s=tuple(init for _, init, _ in growths),
        growth=tuple(price for _, _, price in growths),
        held=simulator.held,
        minimum_s=billing.minimum_s if by_node else 0.0,
        per_s=billing.per_s,
    )


def price(table: Table, path: Sequence[int]) -> tuple[float, float]:
    """Seconds and cost of one plan, given by the index of its allocation in each stage."""
    stays = [
        [table.held, math.inf]
    ]  # nodes by when they came, and for how long they are paid; the last to come
    seconds, cost, at = 0.0, 0.0, 0  # leaves first
    for k, to in enumerate(path):
        nodes, held = int(table.nodes[k][to]), sum(int(count) for count, _ in stays)
        cost += _given_back(table, stays, held - nodes)
        scale, init = float(table.scaling_s[k][at, to]), float(table.init_s[k][at, to])
        ready = init + float(table.seconds[k][to])
        for stay in stays:
            stay[1] += scale + ready
        stays.append([max(0, nodes - held), ready])
        seconds += scale + ready
        cost += float(table.growth[k][at, to] + table.cost[k][to])
        at = to
    return seconds, cost + _given_back(table, stays, int(table.nodes[-1][path[-1]]))


def _given_back(table: Table, stays: list[list[float]], count: int) -> float:
    """Take so many nodes away, and return what their minimum costs in addition."""
    cost = 0.0
    for stay in reversed(stays):
        leaving = min(max(0, count), stay[0])
        stay[0] -= leaving
        count -= int(leaving)
        cost += leaving * max(0.0, table.minimum_s - stay[1]) * table.per_s
    return cost


def _efficient(nodes: Sequence[int], seconds: Sequence[float], cost: Sequence[float]) -> list[int]:
    """The allocations for which no other on as many nodes is both as fast and as cheap."""
    order = sorted(range(len(nodes)), key=lambda i: (nodes[i], seconds[i], cost[i]))
    chosen: list[int] = []
    for i in order:
        if not chosen or nodes[chosen[-1]] != nodes[i] or cost[i] < cost[chosen[-1]]:
            chosen.append(i)
    return chosen


def _growth(simulator: Simulator, k: int, before: Ints, after: Ints) -> tuple[Floats, Floats, Floats]:
    """Mean seconds of SCALE and INIT between each two allocations, and their cost with that of the data."""
    billing = simulator.profile.billing
    new = np.maximum(0, after[None, :] - before[:, None])
    scale = np.where(new > 0, simulator.scaling(k, 1)[0].mean(), 0.0)
    longest = np.concatenate([[0.0], simulator.init_longest(k).mean(axis=0)])
    init = longest[new]
    price = new * billing.fetch
    if billing.per is Per.NODE:
        kept = np.minimum(before[:, None], after[None, :])
        price = price + (kept * (scale + init) + new * init) * billing.per_s
    return scale, init, price
