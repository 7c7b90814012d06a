"""Baselines of plans: a cluster of fixed size, and a fixed number of workers for each trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bftrainer.search.plan.model.simulate import PlanEstimate, Simulator
from bftrainer.search.plan.model.step import PlanStep, nodes_needed, of_nodes, of_workers


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A step for each stage, with what they take and cost, and how they were found.

    `held`: without steps, the nodes held from begin to end.
    """

    method: str
    steps: tuple[PlanStep, ...]
    estimate: PlanEstimate
    held: int = 0

    @property
    def nodes(self) -> int:
        """The most that are held at a time."""
        return max((step.nodes for step in self.steps), default=self.held)

    @property
    def at_a_time(self) -> int:
        """The most trials that run at a time, by the steps."""
        return max((step.parallel for step in self.steps), default=0)


def rounded(value: float) -> float:
    """A cost or time to compare: two that differ only by the order in which they were added up are equal."""
    return float(f"{value:.9g}")


def worth(plan: StagePlan) -> tuple[float, float]:
    """A key that sorts plans: the cheapest first, and of those that cost the same the fastest."""
    return rounded(plan.estimate.total), plan.estimate.jct_s


def cheapest(plans: Iterable[StagePlan], deadline_s: float) -> StagePlan | None:
    """The cheapest plan that is done by the deadline on average; None if none is."""
    return min((plan for plan in plans if plan.estimate.jct_s <= deadline_s), key=worth, default=None)


def fixed_sizes(simulator: Simulator) -> list[StagePlan]:
    """The same number of nodes in every stage: a plan for each size on which the trials can run."""
    plans = []
    for nodes in range(1, simulator.profile.nodes + 1):
        steps = [of_nodes(stage, nodes, simulator.profile) for stage in simulator.experiment.stages]
        if all(steps):
            plans.append(_plan("static", [step for step in steps if step], simulator))
    return plans


def fixed_trials(simulator: Simulator) -> list[StagePlan]:
    """The same number of workers for every trial in every stage, all trials at a time ("naive elastic")."""
    profile, plans = simulator.profile, []
    stages = simulator.experiment.stages
    at_once = [profile.at_once(stage.trials) for stage in stages]
    for each in range(profile.least, profile.most + 1):
        if max(nodes_needed(n, each, profile.node_workers) for n in at_once) > profile.nodes:
            break
        steps = [of_workers(stage, n * each, profile) for stage, n in zip(stages, at_once, strict=True)]
        plans.append(_plan("naive elastic", steps, simulator))
    return plans


def _plan(method: str, steps: Sequence[PlanStep], simulator: Simulator) -> StagePlan:
    return StagePlan(method, tuple(steps), simulator.estimate(steps))
