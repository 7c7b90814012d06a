"""What is left of a study that runs, how long that takes on the nodes of now, and what its deadline needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bftrainer.search.brackets import brackets
from bftrainer.search.plan import of_study
from bftrainer.search.plan.exact import exact
from bftrainer.search.plan.experiment import Experiment, Stage
from bftrainer.search.plan.profile import Profile
from bftrainer.search.plan.simulate import Simulator
from bftrainer.search.plan.step import of_nodes
from bftrainer.search.plan.table import tabulate
from bftrainer.search.study import StudySpec


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a trial is: how many rungs it has ended, its samples, whether it goes on or failed."""

    number: int
    ended: int
    samples: float
    unfinished: bool
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is left of a study.

    Attributes:
        experiment: Its stages; brackets follow each other.
        seconds: On the nodes of now; None if no trial fits on them.
        nodes: That each stage needs to meet the deadline by as few node-hours as possible; None if there is
            no deadline, or it cannot be met.
    """

    experiment: Experiment
    seconds: float | None
    nodes: tuple[int, ...] | None


def left(study: StudySpec, trials: Sequence[Progress]) -> Experiment | None:
    """The stages that are left of a study, with the mean of the samples that their trials still have to do.

    Trials that have not begun are left, too. None if nothing is.
    """
    stages = []
    for bracket in brackets(study):
        own = [t for t in trials if bracket.first <= t.number < bracket.first + bracket.trials]
        for rung, (begin, end) in enumerate(zip((0, *bracket.budgets), bracket.budgets, strict=False)):
            gone = sum(t.ended > rung or (t.failed and t.ended == rung) for t in own)
            missing = bracket.size(rung) - gone
            here = (t.samples for t in own if t.unfinished and t.ended == rung)
            begun = [end - samples for samples in here if begin < samples < end][: max(0, missing)]
            work = sum(begun) + (missing - len(begun)) * (end - begin)
            if missing > 0:
                stages.append(Stage(missing, work / missing))
    return Experiment(study.name, tuple(stages)) if stages else None


def ahead(
    study: StudySpec, trials: Sequence[Progress], nodes: int, deadline_s: float | None, most: int = 512
) -> Ahead | None:
    """How a study goes on with `nodes`, and what a deadline in so many seconds needs of at most `most` nodes.

    None if nothing is left, or the study's trainer has no curve.
    """
    profile = replace(of_study.profile(study), nodes=most)
    experiment = left(study, trials)
    if experiment is None or not profile.curve:
        return None
    simulator = Simulator(experiment, profile, samples=1, held=min(nodes, most))
    needed = None
    if deadline_s is not None and deadline_s > 0:
        plan = exact(simulator, tabulate(simulator), deadline_s).plan
        needed = tuple(step.nodes for step in plan.steps) if plan else None
    return Ahead(experiment, _seconds(simulator, profile, nodes), needed)


def _seconds(simulator: Simulator, profile: Profile, nodes: int) -> float | None:
    steps = [of_nodes(stage, nodes, profile) if nodes else None for stage in simulator.experiment.stages]
    if not all(steps):
        return None
    return sum(simulator.means(k, step)[0] for k, step in enumerate(steps) if step)
