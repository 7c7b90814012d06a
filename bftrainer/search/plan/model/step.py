"""One stage with its nodes: how many trials run at a time, with how many workers each."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.search.plan.model.experiment import Stage
from bftrainer.search.plan.model.profile import ExperimentProfile

UNEVEN = 64
"""Trials of a stage up to which any number may run at a time; with more, planning would take long."""


def nodes_needed(trials: int, workers: int, node_workers: int) -> int:
    """Return how many nodes hold `trials` with `workers` each. Those of a trial stand together: on one
    node if they fit, else on as few nodes as possible, which are the trial's alone."""
    if workers > node_workers:
        return trials * -(-workers // node_workers)
    return -(-trials // (node_workers // workers))


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A stage as it is carried out.

    Attributes:
        stage: The stage.
        parallel: Trials that run at a time; the others wait for one of them to end.
        workers: Workers of each.
        nodes: Held while the stage runs.
    """

    stage: Stage
    parallel: int
    workers: int
    nodes: int

    @property
    def waves(self) -> int:
        """Return how many trials run one after the other in the same place, at most."""
        return -(-self.stage.trials // self.parallel)


def of_workers(stage: Stage, workers: int, profile: ExperimentProfile) -> PlanStep:
    """Return the stage on `workers` in all, at least a trial's least, shared out evenly among its trials."""
    parallel = min(profile.at_once(stage.trials), workers // profile.least)
    each = profile.fitting(workers // parallel)
    return PlanStep(stage, parallel, each, nodes_needed(parallel, each, profile.node_workers))


def of_nodes(stage: Stage, nodes: int, profile: ExperimentProfile) -> PlanStep | None:
    """Return the stage on `nodes`, all held: each trial gets what makes it fastest; None if none fits."""
    per, trials = profile.node_workers, profile.at_once(stage.trials)
    room = (nodes // trials) * per if nodes >= trials else per // -(-trials // nodes)
    if room >= profile.least:
        return PlanStep(stage, trials, profile.fastest(room), nodes)
    own = -(-profile.least // per)  # nodes of one trial
    slots = nodes // own if own > 1 else nodes * (per // profile.least)
    return PlanStep(stage, slots, profile.least, nodes) if slots else None


def allocations(stage: Stage, profile: ExperimentProfile) -> tuple[PlanStep, ...]:
    """The ways to share workers out: all trials at a time, or fewer in several waves, each with any number of
    workers that makes a trial faster than fewer do.

    Where all trials take as long, the fewest at a time that make a number of waves are the best: those alone
    are taken, and in stages of more than `UNEVEN` trials in any case. Stragglers give other numbers a chance:
    a few trials then wait, each for one that ends early.
    """
    trials, most = stage.trials, profile.at_once(stage.trials)
    if profile.differ and trials <= UNEVEN:
        waves = list(range(1, most + 1))
    else:
        waves = sorted({most} | {n for count in range(1, trials + 1) if (n := -(-trials // count)) <= most})
    sizes = profile.rising()
    return tuple(
        PlanStep(stage, parallel, workers, nodes)
        for parallel in waves
        for workers in sizes
        if (nodes := nodes_needed(parallel, workers, profile.node_workers)) <= profile.nodes
    )
