"""RubberBand's planner (section 4.3, algorithm 2): takes workers where that saves most for its time; and a
repaired one that passes over what stops the published one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from bftrainer.search.plan.baselines import StagePlan, cheapest
from bftrainer.search.plan.model.experiment import Stage
from bftrainer.search.plan.model.profile import ExperimentProfile
from bftrainer.search.plan.model.simulate import Simulator
from bftrainer.search.plan.model.step import PlanStep, nodes_needed, of_nodes, of_workers
from bftrainer.search.plan.model.table import Table, price

WARM_STARTS = (1, 2, 3)
"""Multiples of the cheapest fixed size from which the search begins."""
LEAST_GAIN = 1e-9
"""Share of the cost by which a plan has to be cheaper: the paper's delta."""

At = tuple[int, ...]
"""A place in the choices of each stage."""
Figures = tuple[float, float]
"""Seconds and cost."""


def greedy(simulator: Simulator, deadline_s: float, static: StagePlan | None) -> StagePlan | None:
    """Algorithm 2 as published, from 1, 2 and 3 times the cheapest fixed size; None without one.

    A candidate lowers one stage to the next allocation that is a factor or a multiple of the trials. The one
    with the largest marginal benefit is taken; the search ends where that one saves nothing or is late.
    """
    if static is None:
        return None
    profile, stages = simulator.profile, simulator.experiment.stages
    found = [StagePlan("greedy", static.steps, static.estimate)]
    for times in WARM_STARTS:
        nodes = min(profile.nodes, static.steps[0].nodes * times)
        first = [of_nodes(stage, nodes, profile) for stage in stages]
        own = [
            [*_fair(stage, nodes * profile.node_workers, profile), step]
            for stage, step in zip(stages, first, strict=True)
            if step is not None
        ]

        def figures(at: At, own: Sequence[Sequence[PlanStep]] = own) -> Figures:
            estimate = simulator.estimate(_steps(own, at))
            return estimate.jct_s, estimate.total

        start = tuple(len(options) - 1 for options in own)
        if figures(start)[0] <= deadline_s:
            end = _descend(start, figures, deadline_s, repaired=False)
            found.append(_plan("greedy", own, end, simulator))
    return cheapest(found, deadline_s)


def repaired(
    simulator: Simulator, table: Table, deadline_s: float, static: StagePlan | None
) -> StagePlan | None:
    """Algorithm 2 without what stops it early; None if none of its starts meets the deadline.

    It passes over candidates that free no node, and over those that are late, and takes the best of the
    others. It tries all allocations of the tables, and where no fixed size is on time it begins with the most
    nodes. It is never worse than `static`.
    """
    size = simulator.profile.node_workers
    own = [
        [s for s in options if s.nodes == nodes_needed(s.parallel, s.workers, size)]
        for options in table.steps
    ]
    places = [[options.index(step) for step in kept] for options, kept in zip(table.steps, own, strict=True)]

    def figures(at: At) -> Figures:
        return price(table, [places[k][i] for k, i in enumerate(at)])

    nodes = static.steps[0].nodes if static else simulator.profile.nodes
    found = [StagePlan("greedy-repaired", static.steps, static.estimate)] if static else []
    for times in WARM_STARTS if static else (1,):
        start = tuple(_at_least(nodes * times, options) for options in own)
        if figures(start)[0] <= deadline_s:
            end = _descend(start, figures, deadline_s, repaired=True)
            found.append(_plan("greedy-repaired", own, end, simulator))
    return cheapest(found, deadline_s)


def _fair(stage: Stage, most: int, profile: ExperimentProfile) -> Iterator[PlanStep]:
    """The stage with ever more workers, below `most`, that are a factor or a multiple of its trials, or of as
    many of them as may run at a time."""
    at_once = profile.at_once(stage.trials)
    factors = (n for n in range(1, at_once) if at_once % n == 0)
    multiples = (at_once * n for n in range(1, most // (at_once * profile.least) + 1))
    for count in (*factors, *multiples):
        step = of_workers(stage, count * profile.least, profile)
        if count * profile.least < most and step.nodes <= profile.nodes:
            yield step


def _at_least(nodes: int, options: Sequence[PlanStep]) -> int:
    """Return the first allocation on at least `nodes`; the largest if all have fewer."""
    enough = (at for at, step in enumerate(options) if step.nodes >= nodes)
    return next(enough, len(options) - 1)


def _descend(start: At, figures: Callable[[At], Figures], deadline_s: float, *, repaired: bool) -> At:
    """Lower the allocation of one stage after the other while that saves and meets the deadline."""
    here, (seconds, cost) = start, figures(start)
    while True:
        best: tuple[float, At, Figures] | None = None
        for k, i in enumerate(here):
            if i == 0:
                continue
            there = (*here[:k], i - 1, *here[k + 1 :])
            later, less = figures(there)
            if repaired and (cost - less <= LEAST_GAIN * cost or later > deadline_s):
                continue
            benefit = _benefit(cost - less, later - seconds)
            if best is None or benefit > best[0]:
                best = benefit, there, (later, less)
        if best is None or cost - best[2][1] <= LEAST_GAIN * cost or best[2][0] > deadline_s:
            return here
        _, here, (seconds, cost) = best


def _benefit(saved: float, longer: float) -> float:
    """Equation 1. What takes no longer is the best if it saves; what changes nothing is worth nothing."""
    if longer > 0:
        return saved / longer
    return math.copysign(math.inf, saved) if abs(saved) > LEAST_GAIN else 0.0


def _steps(own: Sequence[Sequence[PlanStep]], at: At) -> list[PlanStep]:
    return [options[i] for options, i in zip(own, at, strict=True)]


def _plan(method: str, own: Sequence[Sequence[PlanStep]], at: At, simulator: Simulator) -> StagePlan:
    steps = _steps(own, at)
    return StagePlan(method, tuple(steps), simulator.estimate(steps))
