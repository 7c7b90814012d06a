"""All brackets of a search at once on nodes that are held from its begin to its end, as a daemon runs it.

Trials share the nodes as in `Execution`: whoever waits has the next node that becomes free, whichever bracket
it belongs to. So this may be on time where no plan with stages of its own for each bracket is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from bftrainer.search.plan.baselines import StagePlan
from bftrainer.search.plan.model.profile import Per
from bftrainer.search.plan.model.simulate import PlanEstimate, Simulator
from bftrainer.search.plan.planner import FRESH, DeadlineAnswer, Judge
from bftrainer.search.plan.pools.execution import BracketRun, Execution, Supply

METHOD = "trial by trial"


def at_once(simulator: Simulator, brackets: Sequence[BracketRun], sizes: Iterable[int]) -> list[StagePlan]:
    """Return the search on each number of nodes where it can be done. Nodes are billed, not functions."""
    profile, tried = simulator.profile, list(sizes)
    if profile.billing.per is Per.FUNCTION:
        return []
    draws = simulator.samples if profile.differ or profile.sync.std else 1
    run = Execution(simulator, brackets, Supply.none())
    more = np.tile(np.repeat(np.array(tried), draws), (run.phases, 1))
    ends = run.run(np.zeros(more.shape[1]), more)[-1].reshape(len(tried), draws)
    found = []
    for nodes, trains in zip(tried, ends, strict=True):
        if np.isfinite(trains).all():
            scale, init = simulator.scaling(0, nodes)
            paid = np.maximum(init + trains, profile.billing.minimum_s) * profile.billing.per_s
            cost = nodes * (paid + profile.billing.fetch)
            found.append(
                StagePlan(METHOD, (), PlanEstimate((scale + init + trains)[None], cost[None]), nodes)
            )
    return found


def answer(
    simulator: Simulator,
    brackets: Sequence[BracketRun],
    plans: Sequence[StagePlan],
    deadline_s: float,
    chance: float | None,
) -> DeadlineAnswer:
    """Return the cheapest of these plans on time, and the fastest. There must be one."""

    @cache
    def on_fresh_draws(nodes: int) -> PlanEstimate:
        return at_once(simulator.anew(FRESH), brackets, [nodes])[0].estimate

    judge = Judge(deadline_s, chance, lambda own: on_fresh_draws(own.nodes))
    chosen = judge.cheapest(plans)
    soonest = min(plans, key=lambda plan: (plan.estimate.jct_s, plan.nodes))
    return DeadlineAnswer(
        deadline_s, chosen, soonest, {METHOD: chosen}, None, proven=False, fresh=judge.fresh
    )
