"""Factors by which trainers count beside the weights of their specs, see the setting `weights_by`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bftrainer.allocate.goodput import weights
from bftrainer.model.policy import EngineSettings, WeightsBy
from bftrainer.model.trainer import Trainer
from bftrainer.performance import curve
from bftrainer.performance.curve import Floats
from bftrainer.performance.estimate import Estimates


def factors(
    trainers: Sequence[Trainer], estimates: Sequence[Estimates], settings: EngineSettings, now: float
) -> Floats:
    """By how much each trainer counts, times its own weight; in order of preference where they are alike."""
    if settings.weights_by is WeightsBy.SPEC:
        return np.ones(len(trainers))
    served = [t.served(now) for t in trainers]
    if settings.weights_by is WeightsBy.SERVICE:
        return weights.by_service(served, settings.service_threshold_s, settings.service_decay)
    alone = [curve.rate(own[None].points, 1) for own in estimates]
    work = [
        weights.expected_work(had, None if (left := left_of(t)) is None or not rate else left / rate)
        for t, had, rate in zip(trainers, served, alone, strict=True)
    ]
    return weights.by_rank(work[::-1])[::-1]  # of those with the same work, the first counts most


def left_of(trainer: Trainer) -> float | None:
    """The samples that a trainer has left to do; None: nobody has said how many it does."""
    return trainer.spec.work if trainer.left is None else trainer.left


def first_in_line(settings: EngineSettings, now: float) -> Callable[[Trainer], float] | None:
    """By what trainers are sorted that differ in nothing but service, work and age; None: by age alone."""

    def work(t: Trainer) -> float:
        left = left_of(t)
        return weights.expected_work(t.served(now), None) if left is None else left

    if settings.weights_by is WeightsBy.SPEC:
        return None
    return work if settings.weights_by is WeightsBy.WORK else lambda t: t.served(now)
