"""The plan for an experiment under a deadline, beside what other methods find, and the fastest plan."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.search.plan.baselines import Plan, cheapest, fixed_sizes, fixed_trials
from bftrainer.search.plan.exact import TOLERANCE, exact, fastest
from bftrainer.search.plan.greedy import greedy
from bftrainer.search.plan.simulate import Simulator
from bftrainer.search.plan.table import tabulate

LATER = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
"""Deadlines that are shown if nothing meets the one that was asked for, in times of the fastest plan."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What can be done by a deadline.

    Attributes:
        deadline_s: The deadline, in seconds from the begin.
        chosen: The cheapest plan on time; None if no plan is.
        fastest: The plan that ends first, whatever it costs.
        others: Method -> its cheapest plan on time; None if it has none.
        bound: No plan on time costs less on average, see `tabulate`; None if none is on time.
    """

    deadline_s: float
    chosen: Plan | None
    fastest: Plan
    others: dict[str, Plan | None]
    bound: float | None


@dataclass(frozen=True, slots=True)
class Later:
    """A later deadline, what the cheapest plan for it costs, and the most nodes that it holds."""

    deadline_s: float
    cost: float
    nodes: int


def plan(simulator: Simulator, deadline_s: float) -> Answer:
    """Plan an experiment: exactly, greedily and by the baselines; the cheapest is chosen.

    The exact planner is fast; the others are there to compare with.
    """
    table = tabulate(simulator)
    fixed = fixed_sizes(simulator)
    static = cheapest(fixed, deadline_s)
    others: dict[str, Plan | None] = {
        "static": static,
        "naive elastic": cheapest(fixed_trials(simulator), deadline_s),
        "greedy": greedy(simulator, table, deadline_s, static),
    }
    known = [found for found in others.values() if found]
    best = exact(simulator, table, deadline_s, min((found.estimate.total for found in known), default=None))
    others = {"exact": best.plan, **others}
    chosen = cheapest(
        [found for found in others.values() if found], deadline_s
    )  # of equal ones the exact plan
    soonest = min([fastest(simulator, table), *fixed], key=lambda found: found.estimate.jct_s)
    return Answer(deadline_s, chosen, soonest, others, best.bound)


def later(simulator: Simulator, answer: Answer) -> list[Later]:
    """What deadlines that can be met would cost, from the earliest one on."""
    table, fixed = tabulate(simulator), fixed_sizes(simulator)
    found = []
    for times in LATER:
        deadline_s = answer.fastest.estimate.jct_s * times
        elastic = exact(simulator, table, deadline_s).plan
        plan = cheapest([*fixed, *([elastic] if elastic else [])], deadline_s * (1 + TOLERANCE))
        if plan is not None:
            found.append(Later(deadline_s, plan.estimate.total, max(step.nodes for step in plan.steps)))
    return found
