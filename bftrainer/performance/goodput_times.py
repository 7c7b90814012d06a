"""Pollux's model of times, brought to what was measured. Pure.

Seven parameters follow no program exactly: some number of nodes has a better ring, some batch a faster
kernel. What the model is off by, as logarithms, is interpolated between measured sizes (by kriging, with an
exponential covariance). A measured size counts as measured, and far from all of them the model stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, eq=False)
class MeasuredSystem:
    """The times of a fitted model with what measurements say of it.

    `at`: the measured nodes, workers and batches of a worker, see `_places`, shape (3, measured).
    `weights`: what each counts in the logarithms of T_iter and T_grad, shape (measured, 2).
    """

    fitted: SystemModel
    at: Floats
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
    covariance = _alike(at, at) + NOISE * np.eye(len(observed))
    return MeasuredSystem(fitted, at, np.linalg.solve(covariance, off))


def _places(nodes: Numbers, workers: Numbers, batch: Numbers) -> Floats:
    """Sizes as points whose distances say how alike they are, shape (3, *sizes)."""
    sizes = np.broadcast_arrays(nodes, workers, batch)
    return np.stack([np.log2(size) / reach for size, reach in zip(sizes, REACH, strict=True)])


def _alike(places: Floats, others: Floats) -> Floats:
    """From 0, far apart, to 1, shape (*places, others)."""
    pairs = zip(places, others, strict=True)
    return np.asarray(np.exp(-sum(np.abs(one[..., np.newaxis] - other) for one, other in pairs)))
