"""A study as input of a plan: its stages, and its trainer's speed, sizes and costs."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.model.trainer import Points
from bftrainer.search.brackets import brackets
from bftrainer.search.plan.model.experiment import Experiment, Stage
from bftrainer.search.plan.model.profile import ExperimentProfile, Latency
from bftrainer.search.study import StudySpec


def experiments(study: StudySpec, iteration_samples: float = 1.0) -> tuple[Experiment, ...]:
    """The stages of a study, an experiment for each bracket; an iteration has `iteration_samples` samples.

    ASHA's are those of successive halving, whose trials wait for each other. Without rungs, or with the
    median, all trials run to their end: how many the median stops is not known beforehand.
    """
    found = []
    own = brackets(study)
    for bracket in own:
        budgets = (0, *bracket.budgets)
        stages = (
            Stage(bracket.size(rung), (budgets[rung + 1] - budgets[rung]) / iteration_samples)
            for rung in range(len(bracket.budgets))
        )
        name = study.name if len(own) == 1 else f"{study.name}, trials from {bracket.first} on"
        found.append(Experiment(name, tuple(stages)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Learnt:
    """A daemon's measurements of a study's trials, for what the study's trainer does not say.

    Attributes:
        curve: Samples/s of a trial by its nodes; empty: nothing.
        start_s: What a trial takes to start (s); None: nothing.
    """

    curve: Points = ()
    start_s: float | None = None


def profile(study: StudySpec, learnt: Learnt | None = None) -> ExperimentProfile:
    """Return the profile that the study's trainer states, with measured values where it states none. The
    curve is empty if neither has one."""
    learnt = learnt or Learnt()
    trainer = study.trainer
    up = trainer.costs.up if trainer.costs else None
    return ExperimentProfile(
        curve=trainer.curve or learnt.curve,
        least=trainer.n_min,
        most=trainer.n_max,
        sizes=trainer.sizes,
        parallelism=study.parallelism,
        start=Latency(up.stall_s + up.init_s if up else learnt.start_s or 0.0),
    )
