"""The plan for an experiment under a deadline, beside what other methods find, and the fastest plan.

"By the deadline" is about the mean of the draws that plans are made with; with a chance, about that share of
fresh draws, as plans are chosen to fit the ones that they were made with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bftrainer.search.plan.baselines import StagePlan, cheapest, fixed_sizes, fixed_trials, worth
from bftrainer.search.plan.methods.exact import TOLERANCE, Exact, exact, fastest
from bftrainer.search.plan.methods.greedy import greedy, repaired
from bftrainer.search.plan.model.simulate import PlanEstimate, Simulator
from bftrainer.search.plan.model.table import Table, tabulate

FRESH = 1000
"""So many fresh draws say how often a plan is on time."""
TIGHTENINGS = 10
"""So many earlier deadlines are tried for a chance: each halves what is left between two of them."""


@dataclass(frozen=True, slots=True)
class DeadlineAnswer:
    """What can be done by a deadline.

    Attributes:
        deadline_s: The deadline, in seconds from the begin.
        chosen: The cheapest plan on time; None if no plan is.
        fastest: The plan that ends first, whatever it costs.
        others: Method -> its cheapest plan on time; None if it has none.
        bound: No plan of the tables that is on time on average costs less; None if none is on time.
        proven: Whether the exact plan is known to be the cheapest of the tables; never with a chance: a plan
            that is late on average may be on time often enough.
        fresh: Method -> its plan on draws that it was not made with.
    """

    deadline_s: float
    chosen: StagePlan | None
    fastest: StagePlan
    others: dict[str, StagePlan | None]
    bound: float | None
    proven: bool
    fresh: Callable[[StagePlan], PlanEstimate]


def plan(simulator: Simulator, deadline_s: float, chance: float | None = None) -> DeadlineAnswer:
    """Plan an experiment: exactly, greedily and by the baselines; the cheapest is chosen.

    The exact planner is fast; the others are there to compare with. `chance`: in at least this share of fresh
    draws all is to be done by the deadline.
    """
    costs, naive = Costs(simulator), fixed_trials(simulator)
    table, fixed = costs.table, costs.fixed
    fresh = simulator.anew(FRESH)

    def on_time(found: StagePlan | None) -> bool:
        if found is None:
            return False
        if chance is None:
            return found.estimate.jct_s <= deadline_s * (1 + TOLERANCE)
        return fresh.estimate(found.steps).chance(deadline_s) >= chance

    def best(plans: list[StagePlan | None]) -> StagePlan | None:
        return min(
            (found for found in plans if found is not None and on_time(found)), key=worth, default=None
        )

    proof = exact(simulator, table, deadline_s)
    until = deadline_s
    if chance is not None and not on_time(proof.plan):
        proof, until = _tightened(simulator, table, deadline_s, on_time, proof)
    static = best([*fixed])
    others = {
        "exact": best([proof.plan]),
        "greedy": best([greedy(simulator, until, static)]),
        "greedy-repaired": best([repaired(simulator, table, until, static)]),
        "static": static,
        "naive elastic": best([*naive]),
    }
    proven = proof.proven and proof.plan is not None and chance is None
    chosen = best([*others.values()])  # of equal ones the exact plan
    return DeadlineAnswer(
        deadline_s,
        chosen,
        costs.fastest(),
        others,
        proof.bound,
        proven,
        lambda own: fresh.estimate(own.steps),
    )


def _tightened(
    simulator: Simulator,
    table: Table,
    deadline_s: float,
    on_time: Callable[[StagePlan | None], bool],
    first: Exact,
) -> tuple[Exact, float]:
    """The exact plan for an earlier deadline that is on time often enough, and that deadline."""
    low = fastest(simulator, table).estimate.jct_s
    found, high = exact(simulator, table, low), deadline_s
    if not on_time(found.plan):
        return Exact(None, proven=False, bound=first.bound), deadline_s
    for _ in range(TIGHTENINGS):
        middle = (low + high) / 2
        tried = exact(simulator, table, middle)
        if on_time(tried.plan):
            found, low = tried, middle
        else:
            high = middle
    return Exact(found.plan, proven=False, bound=first.bound), low


class Costs:
    """What an experiment costs by any deadline: the cheapest of the exact plan and the fixed sizes.

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
