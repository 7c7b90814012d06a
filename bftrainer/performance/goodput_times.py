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
"""By so many doublings of nodes, of workers or of a worker's batch, a measurement's say falls to 1/e."""
NOISE = 1e-3
"""The variance of measured times, relative to that of what the model is off by: they are nearly exact."""
Numbers = npt.ArrayLike
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
        """T_iter (s) with so many accumulation steps, each of T_grad."""
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
class OwnPace:
    """How much longer than those of its program a trainer's iterations take: `factor`, and what its own
    measurements say beside, `at` and `weights` as in `MeasuredSystem`, the weights of shape (measured,)."""

    factor: float
    at: Places
    weights: Floats

    def slower(self, nodes: Numbers, workers: Numbers, batch: Numbers) -> Floats:
        """The program's T_iter times this is the trainer's."""
        alike = _alike(_places(nodes, workers, batch), self.at)
        return np.asarray(self.factor * np.exp(alike @ self.weights))


def own_pace(program: MeasuredSystem, own: Floats) -> OwnPace:
    """The pace of a trainer relative to its program's, from nodes, workers, batch of a worker and T_iter (s)
    of each of its own measurements, shape (measured, 4)."""
    *sizes, seconds = own.T
    off = np.log(seconds / program.iteration_time(*sizes))
    common = median(off.tolist())
    at = _places(*sizes)
    return OwnPace(math.exp(common), at, np.linalg.solve(_covariance(at), off - common))


def _covariance(at: Places) -> Floats:
    return _alike(at, at) + NOISE * np.eye(at[0].size)


def _places(nodes: Numbers, workers: Numbers, batch: Numbers) -> Places:
    """Sizes as points x whose distances say how alike they are, as e^x in each dimension."""
    sizes = zip((nodes, workers, batch), REACH, strict=True)
    return tuple(np.asarray(size, float) ** (1 / (reach * math.log(2))) for size, reach in sizes)


def _alike(places: Places, others: Places) -> Floats:
    """From 0, far apart, to 1, shape (*places, others): e^-|x - y| of each dimension, without a logarithm or
    an exponential of each pair."""
    found: Floats = np.ones(1)
    for one, other in zip(places, others, strict=True):
        found = found * np.minimum(np.multiply.outer(one, 1 / other), np.multiply.outer(1 / one, other))
    return found
