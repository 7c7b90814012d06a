"""Pollux's model of times, brought to what was measured. Pure.

Seven parameters follow no program exactly: some number of nodes has a better ring, some batch a faster
kernel. What the model is off by, as logarithms, is interpolated between measured sizes (by kriging, with an
exponential covariance). A measured size counts as measured, and far from all of them the model stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from bftrainer.performance.curve import Floats
from bftrainer.performance.goodput import SystemModel
from bftrainer.performance.goodput_fit import IterationTime

REACH = (1.0, 1.0, 2.0)
"""Doublings of nodes, of workers and of a worker's batch at which a measurement's weight falls to 1/e."""
NOISE = 1e-3
"""The variance of measured times, relative to that of what the model is off by: they are nearly exact."""
Numbers = npt.ArrayLike
Ints = npt.NDArray[np.int64]
Places = tuple[Floats, ...]
"""Sizes in the dimensions nodes, workers and batch of a worker, see `_places`."""


@dataclass(frozen=True, eq=False)
class MeasuredSystem:
    """The times of a fitted model with what measurements say of it.

    `at`: the measured sizes, of shape (measured,) in each dimension.
    `weights`: what each counts in the logarithms of T_iter and T_grad, shape (measured, 2).
    """

    fitted: SystemModel
    at: Places
    weights: Floats

    def iteration_time(
        self, nodes: Numbers, workers: Numbers, batch: Numbers, accumulation: Numbers = 0
    ) -> Floats:
        """T_iter (s) with this number of accumulation steps, each of T_grad."""
        off = np.exp(_alike(_places(nodes, workers, batch), self.at) @ self.weights)
        whole = self.fitted.iteration_time(nodes, workers, batch) * off[..., 0]
        gradient = self.fitted.gradient_time(batch) * off[..., 1]
        return np.asarray(np.asarray(accumulation) * gradient + whole)


def measured(fitted: SystemModel, observed: Sequence[IterationTime]) -> MeasuredSystem:
    """A fitted model that follows these measurements. Those of one size count as their mean; those without a
    time of gradients leave that as it was fitted."""
    nodes, workers, batch = np.array([(seen.nodes, seen.workers, seen.batch) for seen in observed]).T
    at = _places(nodes, workers, batch)
    iteration_s, gradient_s = fitted.iteration_time(nodes, workers, batch), fitted.gradient_time(batch)
    told = np.array([(seen.iteration_s, seen.gradient_s or np.nan) for seen in observed])
    off = np.nan_to_num(np.log(told / np.stack([iteration_s, gradient_s], axis=1)))
    return MeasuredSystem(fitted, at, np.linalg.solve(_covariance(at), off))


@dataclass(frozen=True, eq=False)
class OwnPaces:
    """Factors by which each of T trainers' iterations take longer than its program's: `factors`, shape (T,),
    and its own measurements beside, `at` and `weights` as in `MeasuredSystem`, each of shape (most measured,
    T); those that a trainer does not have weigh 0."""

    factors: Floats
    at: Places
    weights: Floats

    @classmethod
    def of(cls, program: MeasuredSystem, owns: Sequence[Sequence[tuple[int, int, int, float]]]) -> OwnPaces:
        """Build from nodes, workers, batch of a worker and T_iter (s) of each trainer's measurements."""
        counts = [len(own) for own in owns]
        *sizes, seconds = np.array([time for own in owns for time in own], float).reshape(-1, 4).T
        off = np.log(seconds / program.iteration_time(*sizes))
        common = [median(own.tolist()) if len(own) else 0.0 for own in np.split(off, np.cumsum(counts)[:-1])]
        trainer = np.repeat(np.arange(len(owns)), counts)
        which = np.concatenate([np.arange(count) for count in counts]), trainer
        shape = max(counts), len(owns)

        def table(values: Floats, beyond: float) -> Floats:
            found = np.full(shape, beyond)
            found[which] = values
            return found

        at = tuple(table(place, 1.0) for place in _places(*sizes))
        rest, real = table(off - np.array(common)[trainer], 0.0), table(np.ones(len(off)), 0.0)
        alike = real * real[:, np.newaxis]
        for place in at:
            alike = alike * np.minimum(place / place[:, np.newaxis], place[:, np.newaxis] / place)
        matrices = np.moveaxis(alike, 2, 0) + NOISE * np.eye(shape[0])
        weights = np.linalg.solve(matrices, rest.T[..., np.newaxis])[..., 0].T
        return cls(np.exp(common), at, np.asarray(weights, np.float64))

    def slower(self, which: Ints, nodes: Numbers, workers: Numbers, batch: Numbers) -> Floats:
        """The program's T_iter times this is that of trainer `which`; all of shapes that broadcast."""
        places = _places(nodes, workers, batch)
        inverse = tuple(1 / place for place in places)
        said = np.zeros(())
        for i, weight in enumerate(self.weights):
            alike = weight[which]
            for place, back, at in zip(places, inverse, self.at, strict=True):
                own = at[i, which]
                alike = alike * np.minimum(place / own, back * own)
            said = said + alike
        return np.asarray(self.factors[which] * np.exp(said))


def _covariance(at: Places) -> Floats:
    return _alike(at, at) + NOISE * np.eye(at[0].size)


def _places(nodes: Numbers, workers: Numbers, batch: Numbers) -> Places:
    """Sizes as points x whose distances say how alike they are, as e^x in each dimension."""
    sizes = zip((nodes, workers, batch), REACH, strict=True)
    return tuple(np.asarray(size, float) ** (1 / (reach * math.log(2))) for size, reach in sizes)


def _alike(places: Places, others: Places) -> Floats:
    """Similarity from 0, far apart, to 1, shape (*places, others): e^-|x - y| of each dimension, without a
    logarithm or an exponential of each pair."""
    found: Floats = np.ones(1)
    for one, other in zip(places, others, strict=True):
        found = found * np.minimum(np.multiply.outer(one, 1 / other), np.multiply.outer(1 / one, other))
    return found
