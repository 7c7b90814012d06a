"""RubberBand's planner (section 4.3, algorithm 2): take workers where it saves most for its time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bftrainer.search.plan.baselines import Plan, cheapest
from bftrainer.search.plan.placement import nodes_needed
from bftrainer.search.plan.simulate import Simulator
from bftrainer.search.plan.step import Step
from bftrainer.search.plan.table import Table, price

WARM_STARTS = (1, 2, 3)
"""Multiples of the cheapest fixed size from which the search begins."""
LEAST_GAIN = 1e-9
"""Share of the cost by which a step has to be cheaper."""


def greedy(simulator: Simulator, table: Table, deadline_s: float, static: Plan | None) -> Plan | None:
    """The cheapest plan found from several warm starts; None if none of them meets the deadline.

    Warm starts are multiples of `static`, the cheapest fixed size. Where no fixed size meets the deadline,
    the search begins from the most workers. The plan is never worse than `static`. Unlike the paper's, the
    search passes over allocations that free no node, and over candidates that miss the deadline.
    """
    nodes = static.steps[0].nodes if static else simulator.profile.nodes
    choices = [_fair(simulator, options) for options in table.steps]
    found = [static] if static else []
    for times in WARM_STARTS if static else (1,):
        path = _descend(table, deadline_s, choices, [_at_least(nodes * times, own) for own in choices])
        if path is not None:
            steps = tuple(options[i] for options, i in zip(table.steps, path, strict=True))
            found.append(Plan("greedy", steps, simulator.estimate(steps)))
    return cheapest(found, deadline_s)


def _fair(simulator: Simulator, options: Sequence[Step]) -> list[tuple[int, int]]:
    """Index and nodes of what the paper tries: workers that are a factor or a multiple of the trials, or of
    as many of them as may run at a time."""
    size, most = simulator.profile.node_workers, simulator.profile.parallelism
    return [
        (i, step.nodes)
        for i, step in enumerate(options)
        if (step.stage.trials % step.parallel == 0 or step.parallel == most)
        and step.nodes == nodes_needed(step.parallel, step.workers, size)
    ]


def _at_least(nodes: int, options: Sequence[tuple[int, int]]) -> int:
    """The first allocation on so many nodes; the largest if all have fewer."""
    enough = (at for at, (_, own) in enumerate(options) if own >= nodes)
    return next(enough, len(options) - 1)


def _descend(
    table: Table, deadline_s: float, choices: Sequence[Sequence[tuple[int, int]]], start: list[int]
) -> list[int] | None:
    """Lower the allocation of one stage after the other while that saves and meets the deadline."""

    def path(at: Sequence[int]) -> list[int]:
        return [options[i][0] for options, i in zip(choices, at, strict=True)]

    here, (seconds, cost) = start, price(table, path(start))
    if seconds > deadline_s:
        return None
    while True:
        best: tuple[float, list[int], float, float] | None = None
        for k, i in enumerate(here):
            if i == 0:
                continue
            there = [*here[:k], i - 1, *here[k + 1 :]]
            later, less = price(table, path(there))
            if cost - less <= LEAST_GAIN * cost or later > deadline_s:
                continue
            benefit = (cost - less) / (later - seconds) if later > seconds else math.inf
            if best is None or benefit > best[0]:
                best = benefit, there, later, less
        if best is None:
            return path(here)
        _, here, seconds, cost = best
