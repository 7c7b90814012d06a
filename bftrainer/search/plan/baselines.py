"""What plans are compared with: a cluster of fixed size, and a fixed number of workers for each trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bftrainer.search.plan.placement import nodes_needed
from bftrainer.search.plan.simulate import Estimate, Simulator
from bftrainer.search.plan.step import Step, of_nodes, of_workers


@dataclass(frozen=True, slots=True)
class Plan:
    """A step for each stage, with what they take and cost, and how they were found."""

    method: str
    steps: tuple[Step, ...]
    estimate: Estimate


def cheapest(plans: Iterable[Plan], deadline_s: float) -> Plan | None:
    """The cheapest plan that is done by the deadline on average; None if none is."""
    on_time = (plan for plan in plans if plan.estimate.jct_s <= deadline_s)
    return min(on_time, key=lambda plan: (plan.estimate.total, plan.estimate.jct_s), default=None)


def fixed_sizes(simulator: Simulator) -> list[Plan]:
    """The same number of nodes in every stage: a plan for each size on which the trials can run."""
    plans = []
    for nodes in range(1, simulator.profile.nodes + 1):
        steps = [of_nodes(stage, nodes, simulator.profile) for stage in simulator.experiment.stages]
        if all(steps):
            plans.append(_plan("static", [step for step in steps if step], simulator))
    return plans


def fixed_trials(simulator: Simulator) -> list[Plan]:
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


def _plan(method: str, steps: Sequence[Step], simulator: Simulator) -> Plan:
    return Plan(method, tuple(steps), simulator.estimate(steps))
