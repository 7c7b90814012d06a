"""The cheapest plan on time of those in the tables, proven: dynamic programming over stages, bounded by a
Lagrangian relaxation.

A label: steps for the first stages, with their time and cost so far. Labels are extended stage by stage. One
is dropped if another that ends on as many nodes is no later and no dearer, or if what is left cannot be cheap
enough: for any price on a second of the deadline, the cheapest way on, ignoring the deadline, is a lower
bound. "On time" is about the simulator's mean seconds.

A minimum charge depends on how long a node is held in each draw, and the tables have means only. So labels
have a lower and an upper bound of it, and the simulator prices those that are left, the cheapest bound first,
until no other one can be cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bftrainer.search.plan.baselines import StagePlan, worth
from bftrainer.search.plan.methods.labels import Index, Labels, Mask, advance, begin, undominated
from bftrainer.search.plan.methods.relaxed import Relaxed, bracket, relax
from bftrainer.search.plan.model.profile import Floats
from bftrainer.search.plan.model.simulate import TOLERANCE, Simulator
from bftrainer.search.plan.model.table import Table

MOST_LABELS = 200_000
"""Labels that are kept of a stage; if there are more, the plan is not proven."""
MOST_PRICED = 3000
"""Plans that are priced draw by draw; if more could be the cheapest, the plan is not proven."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The exact planner's result.

    Attributes:
        plan: The cheapest plan on time; None if no plan is.
        proven: Whether no plan on time of the tables is cheaper.
        bound: No such plan costs less; None if no plan is on time.
    """

    plan: StagePlan | None
    proven: bool
    bound: float | None


def fastest(simulator: Simulator, table: Table) -> StagePlan:
    """The plan that ends first on average; of several, about the cheapest."""
    scale = max(float(costs.max()) for costs in table.cost) or 1.0
    path = relax(table, time_price=1e7 * scale, cost_price=1.0).path
    return _plan(simulator, table, path)


def exact(simulator: Simulator, table: Table, deadline_s: float) -> Exact:
    """The cheapest plan whose mean time is within the deadline; of several, the fastest."""
    quickest = relax(table, time_price=1.0, cost_price=0.0)
    if quickest.seconds > deadline_s * (1 + TOLERANCE):
        return Exact(None, proven=True, bound=None)
    bounds, feasible = bracket(table, deadline_s)
    known = [_plan(simulator, table, path) for path in (*feasible, quickest.path)]
    best = min(known, key=worth)
    dual = max(bound.value - bound.time_price * deadline_s for bound in bounds)
    labels, proven = _labels(table, deadline_s, bounds, best.estimate.total)
    least = labels.cost + labels.pending(table.minimum_s)[0] * table.per_s
    for count, at in enumerate(np.argsort(least, kind="stable")):
        if least[at] > best.estimate.total * (1 + TOLERANCE):
            break
        if count == MOST_PRICED:
            proven, dual = False, max(dual, float(least[at]) if proven else dual)
            break
        best = min(best, _plan(simulator, table, labels.path[at].tolist()), key=worth)
    return Exact(best, proven, best.estimate.total if proven else min(dual, best.estimate.total))


def _labels(table: Table, deadline_s: float, bounds: Sequence[Relaxed], most: float) -> tuple[Labels, bool]:
    """The labels of plans on time that cost no more than `most`, and whether these are all there are."""
    labels, proven = begin(table), True
    quickest = relax(table, time_price=1.0, cost_price=0.0).onwards
    for k in range(len(table.nodes)):
        promising = partial(_promising, k + 1, (deadline_s, most), quickest, bounds)
        labels = undominated(advance(table, labels, k, promising), table)
        if labels.seconds.size > MOST_LABELS:
            labels, proven = labels.where(np.argsort(labels.cost)[:MOST_LABELS]), False
    return labels, proven


def _promising(
    k: int,
    bound: tuple[float, float],
    quickest: Sequence[Floats],
    bounds: Sequence[Relaxed],
    seconds: Floats,
    cost: Floats,
    at: Index,
) -> Mask:
    """Return the labels of the first k stages that can still lead to a plan within `bound`: time and cost."""
    deadline_s, most = bound
    keep: Mask = seconds + quickest[k][at] <= deadline_s * (1 + TOLERANCE)
    for relaxed in bounds:
        rest = relaxed.onwards[k][at] + relaxed.time_price * (seconds - deadline_s)
        keep &= cost + rest <= most * (1 + TOLERANCE)
    return keep


def _plan(simulator: Simulator, table: Table, path: Sequence[int]) -> StagePlan:
    steps = tuple(options[i] for options, i in zip(table.steps, path, strict=True))
    return StagePlan("exact", steps, simulator.estimate(steps))
