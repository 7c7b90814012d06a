"""The plan for an experiment under a deadline, beside what other methods find, and the fastest plan.

"By the deadline" is about fresh draws, their mean or a share of them: plans are chosen to fit the draws that
they were made with, which flatter them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from bftrainer.search.plan.baselines import StagePlan, cheapest, fixed_sizes, fixed_trials, worth
from bftrainer.search.plan.methods.exact import Exact, exact, fastest
from bftrainer.search.plan.methods.greedy import greedy, repaired
from bftrainer.search.plan.model.simulate import TOLERANCE, PlanEstimate, Simulator
from bftrainer.search.plan.model.table import Table, tabulate

FRESH = 1000
"""Fresh draws that say whether a plan is on time."""
STANDARD_ERRORS = 3
"""Standard errors by which a mean of draws is wrong at most, nearly always."""
TIGHTENINGS = 10
"""Earlier deadlines that are tried for a chance: each halves what is left between two of them."""


@dataclass(frozen=True, slots=True)
class DeadlineAnswer:
    """The plans for a deadline.

    Attributes:
        deadline_s: The deadline, in seconds from the begin.
        chosen: The cheapest plan on time; None if no plan is.
        fastest: The plan that ends first, whatever it costs.
        others: Method -> its cheapest plan on time; None if it has none.
        bound: No plan of the tables costs less that is on time on average of the draws that plans are made
            with; None if none is on time.
        proven: Whether the exact plan is known to be the cheapest of these; never with a chance: a plan that
            is late on average may be on time often enough. Nor where the cheapest one is late on average of
            fresh draws.
        fresh: Method -> its plan on draws that it was not made with.
    """

    deadline_s: float
    chosen: StagePlan | None
    fastest: StagePlan
    others: dict[str, StagePlan | None]
    bound: float | None
    proven: bool
    fresh: Callable[[StagePlan], PlanEstimate]


@dataclass(frozen=True, slots=True)
class Judge:
    """Says which plans are on time.

    Attributes:
        deadline_s: From the begin.
        chance: The share of fresh draws in which a plan has to be done by then; None: on average.
        fresh: A plan on draws that it was not made with.
    """

    deadline_s: float
    chance: float | None
    fresh: Callable[[StagePlan], PlanEstimate]

    def late_s(self, plan: StagePlan) -> float:
        """By how much a plan is late on average of the fresh draws; negative: it is early."""
        return self.fresh(plan).jct_s - self.deadline_s * (1 + TOLERANCE)

    def on_time(self, plan: StagePlan | None) -> bool:
        """Return whether a plan is on time. Where its own draws leave no doubt, no others are needed."""
        if plan is None:
            return False
        if self.chance is not None:
            return self.fresh(plan).chance(self.deadline_s) >= self.chance
        own = plan.estimate
        doubt_s = STANDARD_ERRORS * own.jct_std_s / math.sqrt(own.seconds.shape[1])
        return own.jct_s - doubt_s <= self.deadline_s * (1 + TOLERANCE) and self.late_s(plan) <= 0

    def cheapest(self, plans: Iterable[StagePlan | None]) -> StagePlan | None:
        """The cheapest of these that is on time; None if none is."""
        known = [plan for plan in plans if plan is not None]
        return next((plan for plan in sorted(known, key=worth) if self.on_time(plan)), None)


def plan(simulator: Simulator, deadline_s: float, chance: float | None = None) -> DeadlineAnswer:
    """Plan an experiment: exactly, greedily and by the baselines; the cheapest is chosen.

    The exact planner is fast; the others are there to compare with. `chance`: in at least this share of fresh
    draws all is to be done by the deadline.
    """
    costs, naive = Costs(simulator), fixed_trials(simulator)
    table, on_fresh_draws = costs.table, cache(simulator.anew(FRESH).estimate)
    judge = Judge(deadline_s, chance, lambda own: on_fresh_draws(own.steps))
    proof, until = exact(simulator, table, deadline_s), deadline_s
    if not judge.on_time(proof.plan):
        earlier = _in_time if chance is None else _often_enough
        proof, until = earlier(simulator, table, judge, proof)
    static, until = judge.cheapest(costs.fixed), until * (1 + TOLERANCE)
    others = {
        "exact": judge.cheapest([proof.plan]),
        "greedy": judge.cheapest([greedy(simulator, until, static)]),
        "greedy-repaired": judge.cheapest([repaired(simulator, table, until, static)]),
        "static": static,
        "naive elastic": judge.cheapest(naive),
    }
    proven = proof.proven and proof.plan is not None and chance is None
    chosen = judge.cheapest(others.values())  # of equal ones the exact plan
    return DeadlineAnswer(deadline_s, chosen, costs.fastest(), others, proof.bound, proven, judge.fresh)


def _in_time(simulator: Simulator, table: Table, judge: Judge, first: Exact) -> tuple[Exact, float]:
    """The exact plan for an earlier deadline that is on time on average, and that deadline; else the fastest
    plan if it is."""
    found, until = first.plan, judge.deadline_s
    for _ in range(TIGHTENINGS):
        if found is None:
            break
        until = min(until, found.estimate.jct_s) - judge.late_s(found)
        found = exact(simulator, table, until).plan
        if judge.on_time(found):
            return Exact(found, proven=False, bound=first.bound), until
    soonest = fastest(simulator, table)
    on_time = soonest if judge.on_time(soonest) else None
    return Exact(on_time, proven=False, bound=first.bound), judge.deadline_s


def _often_enough(simulator: Simulator, table: Table, judge: Judge, first: Exact) -> tuple[Exact, float]:
    """The exact plan for an earlier deadline that is on time often enough, and that deadline."""
    low, high = fastest(simulator, table).estimate.jct_s, judge.deadline_s
    found = exact(simulator, table, low)
    if not judge.on_time(found.plan):
        return Exact(None, proven=False, bound=first.bound), high
    for _ in range(TIGHTENINGS):
        middle = (low + high) / 2
        tried = exact(simulator, table, middle)
        if judge.on_time(tried.plan):
            found, low = tried, middle
        else:
            high = middle
    return Exact(found.plan, proven=False, bound=first.bound), low


class Costs:
    """An experiment's costs by deadline: the cheapest of the exact plan and the fixed sizes.

    Attributes:
        table: What its stages cost.
        fixed: The plans with one size for all stages.
    """

    def __init__(self, simulator: Simulator) -> None:
        self._simulator, self.table, self.fixed = simulator, tabulate(simulator), fixed_sizes(simulator)

    def fastest(self) -> StagePlan:
        """The plan that ends first."""
        found = [fastest(self._simulator, self.table), *self.fixed]
        return min(found, key=lambda own: own.estimate.jct_s)

    def cheapest(self, deadline_s: float) -> StagePlan | None:
        """The cheapest plan that is on time on average."""
        elastic = exact(self._simulator, self.table, deadline_s).plan
        return cheapest([*self.fixed, *([elastic] if elastic else [])], deadline_s * (1 + TOLERANCE))
