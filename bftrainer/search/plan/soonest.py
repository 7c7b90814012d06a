"""The fastest way to do experiments that share nodes, in whatever order, and what later deadlines cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import add

from bftrainer.search.plan.baselines import StagePlan, cheapest, rounded
from bftrainer.search.plan.model.experiment import MOST_STAGES, ExperimentError
from bftrainer.search.plan.model.simulate import TOLERANCE
from bftrainer.search.plan.planner import Costs
from bftrainer.search.plan.split import shared_out

LATER = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
"""Deadlines that are shown if nothing meets the one that was asked for, in times of the fastest plan."""


class Order(StrEnum):
    """When experiments that share nodes go on."""

    BESIDE = "beside each other"
    ROW = "one after the other"
    AT_ONCE = "trial by trial"


@dataclass(frozen=True, slots=True)
class Later:
    """A later deadline, what the cheapest plan for it costs, and the most nodes that it holds."""

    deadline_s: float
    cost: float
    nodes: int


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways to do experiments, by what they cost until any deadline.

    Attributes:
        most: Nodes that all may have together.
        parallelism: Trials that may run at a time; None: any number.
        shares: Costs of each experiment, on ever more nodes.
        row: Costs of all, one after the other.
        at_once: Trial by trial, on ever more nodes.
    """

    most: int
    parallelism: int | None
    shares: Sequence[Sequence[Costs]]
    row: Costs | None
    at_once: Sequence[StagePlan]

    def fastest(self) -> tuple[Order, list[StagePlan]]:
        """Return the fastest plans, for each experiment or for all; of equally fast ones, the cheapest.

        Raises:
            ExperimentError: there is no way at all; the message says what to change.
        """
        soonest = [[costs.fastest() for costs in own] for own in self.shares]
        ways = [(Order.BESIDE, found) for found in self._beside(soonest, max, lambda own: own.estimate.jct_s)]
        if self.row is not None:
            ways.append((Order.ROW, [self.row.fastest()]))
        ways += [(Order.AT_ONCE, [plan]) for plan in self.at_once]
        if not ways:
            raise ExperimentError(self._impossible())
        first = min(ways, key=lambda way: (_longest(way[1]), _total(way[1])))
        return min([first, *self._cheapest(_longest(first[1]))], key=_worth)

    def _impossible(self) -> str:
        trials = "" if self.parallelism is None else f" and {self.parallelism} trials at a time"
        return (
            f"{len(self.shares)} brackets beside each other do not fit into {self.most} nodes{trials}, and "
            f"in another order at most {MOST_STAGES} stages are planned: give more nodes or parallelism, or "
            "fewer stages by a larger eta or least"
        )

    def later(self, fresh_s: float, fresh_cost: float) -> list[Later]:
        """Return the costs of feasible deadlines, from that of the fastest plan on.

        `fresh_s`, `fresh_cost`: when it ends by fresh draws, and what it costs. The draws that plans are
        made with flatter all of them about as much.
        """
        _, soonest = self.fastest()
        longer, dearer = fresh_s / _longest(soonest), fresh_cost / (_total(soonest) or 1.0)
        found = []
        for deadline_s in (_longest(soonest) * times for times in LATER):
            if ways := list(self._cheapest(deadline_s)):
                _, best = min(ways, key=_worth)
                nodes = sum(plan.nodes for plan in best)
                found.append(Later(deadline_s * longer, _total(best) * dearer, nodes))
        return found

    def _cheapest(self, deadline_s: float) -> Iterator[tuple[Order, list[StagePlan]]]:
        found = [[costs.cheapest(deadline_s) for costs in own] for own in self.shares]
        on_time = [[plan for plan in own if plan is not None] for own in found]
        for plans in self._beside(on_time, add, lambda own: own.estimate.total):
            yield Order.BESIDE, plans
        if self.row is not None and (row := self.row.cheapest(deadline_s)) is not None:
            yield Order.ROW, [row]
        if plan := cheapest(self.at_once, deadline_s * (1 + TOLERANCE)):
            yield Order.AT_ONCE, [plan]

    def _beside(
        self,
        options: Sequence[Sequence[StagePlan]],
        join: Callable[[float, float], float],
        value: Callable[[StagePlan], float],
    ) -> Iterator[list[StagePlan]]:
        found = shared_out(
            [[(own.nodes, value(own), own.estimate.jct_s, own) for own in part] for part in options],
            self.most,
            join,
        )
        at_a_time = sum(plan.at_a_time for plan in found or ())
        if found and (self.parallelism is None or at_a_time <= self.parallelism):
            yield found


def _worth(way: tuple[Order, list[StagePlan]]) -> tuple[float, float]:
    """A key that sorts ways by what they cost, those that cost as much by their time."""
    return rounded(_total(way[1])), _longest(way[1])


def _longest(plans: Sequence[StagePlan]) -> float:
    return max(plan.estimate.jct_s for plan in plans)


def _total(plans: Sequence[StagePlan]) -> float:
    return sum(plan.estimate.total for plan in plans)
