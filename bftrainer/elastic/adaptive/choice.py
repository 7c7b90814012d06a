"""Chooses the batch by goodput: from the times of iterations so far and the gradient noise scale. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bftrainer.elastic.adaptive.batch import Timed, TimedSize
from bftrainer.performance.goodput import (
    BatchLimits,
    GoodputModel,
    SystemModel,
    efficiency,
    split,
)
from bftrainer.performance.goodput_fit import IterationTime, fit

WORTH = 1.05
"""Factor of goodput that is worth a change of batch; less may be an error of the model."""
GROWTH = 4
"""Largest factor by which a batch grows at once: the model has seen a fourth of that."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A batch over all workers, what a worker computes at once, and what it is worth.

    `speed`: samples/s over those with the initial batch on the same workers; `efficiency`: progress per
    sample over that with the initial batch; `goodput`: progress, in samples of the initial batch per second.
    """

    batch: int
    at_once: int
    speed: float
    efficiency: float
    goodput: float


def modelled(times: Mapping[TimedSize, Timed], before: SystemModel | None = None) -> SystemModel | None:
    """The model of an iteration's time; None: nothing usable was measured."""
    observed = []
    for size, timed in times.items():
        gradient = timed.gradient_s if 0 < timed.gradient_s < timed.iteration_s else None
        each = timed.iteration_s
        if size.accumulation:
            # alone, or with unknown times of gradients, all passes are taken to last as long
            each = each / (size.accumulation + 1) if gradient is None else each - size.accumulation * gradient
            gradient = None if gradient is None or gradient >= each else gradient
        if 0 < each < math.inf:
            observed.append(IterationTime(size.nodes, size.workers, size.batch, each, gradient))
    return fit(observed, before) if observed else None


def chosen(
    system: SystemModel, limits: BatchLimits, phi: float, at: TimedSize, present: int, at_once: int
) -> Choice:
    """The batch of highest goodput on `workers` workers, or the present one where no other is clearly better.

    Args:
        limits: of the batches that may be used at all.
        phi: the gradient noise scale in samples.
        at: nodes and workers.
        present: the present batch over all workers, of which a worker computes `at_once` samples at once.

    Raises:
        GoodputError: sizes or figures with which goodput has no meaning.
    """
    now = _worth(system, limits, phi, at, present, at_once)
    if limits.local_least * at.workers > limits.most:
        return now
    reach = replace(limits, most=max(limits.initial, min(limits.most, GROWTH * present)))
    best = GoodputModel(system, reach, phi).best(at.nodes, at.workers)
    if float(best.goodput) <= WORTH * now.goodput:
        return now
    m, steps = int(best.batch), int(best.accumulation)
    return _worth(system, limits, phi, at, min(at.workers * m * (steps + 1), limits.most), m)


def _worth(
    system: SystemModel, limits: BatchLimits, phi: float, at: TimedSize, batch: int, at_once: int
) -> Choice:
    speed = _speed(system, at, batch, at_once)
    first, _ = split(limits, at.workers, limits.initial)
    slowest = _speed(system, at, limits.initial, int(np.asarray(first)))
    worth = float(efficiency(phi, limits.initial, batch))
    return Choice(batch, at_once, speed / slowest, worth, speed * worth)


def _speed(system: SystemModel, at: TimedSize, batch: int, at_once: int) -> float:
    """Samples/s with a batch that workers cut into pieces of `at_once` samples at most."""
    share = -(-batch // at.workers)
    passes = -(-share // at_once)
    return batch / float(system.iteration_time(at.nodes, at.workers, share / passes, passes - 1))
