"""What a plan takes from a study: its stages, and its trainer's speed, sizes and costs."""

from __future__ import annotations

from bftrainer.search.brackets import brackets
from bftrainer.search.plan.experiment import Experiment, Stage
from bftrainer.search.plan.profile import Latency, Profile
from bftrainer.search.study import StudySpec


def experiments(study: StudySpec, iteration_samples: float = 1.0) -> tuple[Experiment, ...]:
    """The stages of a study, an experiment for each bracket; an iteration has so many samples.

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


def profile(study: StudySpec) -> Profile:
    """What the study's trainer says of a profile. Its curve is empty if the trainer has none."""
    trainer = study.trainer
    up = trainer.costs.up if trainer.costs else None
    return Profile(
        curve=trainer.curve or (),
        least=trainer.n_min,
        most=trainer.n_max,
        sizes=trainer.sizes,
        start=Latency(up.stall_s + up.init_s if up else 0.0),
    )
