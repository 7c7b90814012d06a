"""Fits Pollux's system model to observed times of iterations (OSDI 2021, section 4.1). Pure.

The parameters minimise the logarithmic error of T_iter, and of T_grad where that was measured as well, by
L-BFGS-B. What was not seen yet has no influence and is taken as free (prior-driven exploration): a trainer is
believed to scale until larger sizes have shown otherwise, but never to more than `most_workers`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bftrainer.performance.curve import Floats
from bftrainer.performance.goodput import MOST_GAMMA, GoodputError, SystemModel

TINY_S = 1e-9
"""Least time in the fit, in s; a logarithm needs more than 0."""
START_GAMMA = 1.5
LEAST = 1e-6
"""The least of the gradients' parameters, relative to where the search starts: a gradient takes time."""
START_SLOPE = 0.1
"""Start of the search: time that a further worker adds, relative to the time of two."""
OVERLAP_WEIGHT = 1e-5
"""Pulls gamma to 1 where times tell nothing of the overlap, as the paper's final version."""
SLOPE_WEIGHT = 1e-6
"""Pulls the slowdown by further workers to 0, as the paper's final version."""
ITERATIONS = 120
"""Iterations of L-BFGS-B at most: the error changes in its fourth digit by then."""
POOR = 1e-3
"""Mean squared error above which a search that ended is restarted from there: one step that gains next to
nothing ends it, and may be on the way."""


@dataclass(frozen=True, slots=True)
class IterationTime:
    """The time of an iteration with one gradient per worker: T_iter and, if measured, T_grad, in s.

    Raises:
        GoodputError: sizes that cannot be, or a time that is not finite and above 0.
    """

    nodes: int
    workers: int
    batch: int
    iteration_s: float
    gradient_s: float | None = None

    def __post_init__(self) -> None:
        if not (1 <= self.nodes <= self.workers and self.batch >= 1):
            raise GoodputError(f"{self.workers} workers on {self.nodes} nodes with batches of {self.batch}")
        for name, value in (("iteration", self.iteration_s), ("gradient", self.gradient_s)):
            if value is not None and not 0 < value < math.inf:
                raise GoodputError(f"{name} time {value} s; it must be finite and above 0")


def most_workers(observed: Sequence[IterationTime], cap: int) -> int:
    """The most workers to ask for: twice the most seen so far (section 4.1), one at first, at most `cap`."""
    return min(cap, max(1, 2 * max((seen.workers for seen in observed), default=0)))


def fit(observed: Sequence[IterationTime], before: SystemModel | None = None) -> SystemModel:
    """theta_sys for these times (equation 12). Repeated sizes weigh as often as they stand there.

    The search starts from the model of `before`, if there is one, in what it has above 0.

    Raises:
        GoodputError: nothing was observed.
    """
    from scipy.optimize import minimize  # noqa: PLC0415  most daemons and replays do without

    if not observed:
        raise GoodputError("no iteration was measured; measure one before the times are modelled")
    data = _Data.of(observed)
    scale, low, high = _bounds(data)
    start = np.array([1.0] * 6 + [START_GAMMA])
    if before is not None:
        known = np.array([getattr(before, name) for name in SystemModel.__slots__])
        start = np.where(known > 0, known / scale, start)

    def searched(start: Floats) -> Any:
        return minimize(
            data.error,
            np.clip(start, low, high),
            args=(scale,),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options={"maxiter": ITERATIONS, "ftol": 1e-9, "gtol": 1e-9},
        )

    found = searched(start)
    if found.fun > POOR:
        found = searched(found.x)
    values = (float(value) for value in found.x * scale)
    return SystemModel(**dict(zip(SystemModel.__slots__, values, strict=True)))


@dataclass(frozen=True, slots=True)
class _Data:
    """The observations as arrays; `across`: on several nodes, `beyond`: workers beyond the second."""

    batch: Floats
    alone: Floats
    local: Floats
    across: Floats
    beyond: Floats
    log_iteration: Floats
    log_gradient: Floats
    known: Floats

    @classmethod
    def of(cls, observed: Sequence[IterationTime]) -> _Data:
        nodes, workers, batch, times, gradients = (
            np.array(column, float)
            for column in zip(
                *(
                    (
                        o.nodes,
                        o.workers,
                        o.batch,
                        o.iteration_s,
                        math.nan if o.gradient_s is None else o.gradient_s,
                    )
                    for o in observed
                ),
                strict=True,
            )
        )
        known = ~np.isnan(gradients)
        return cls(
            batch=batch,
            alone=(workers == 1).astype(float),
            local=((workers > 1) & (nodes == 1)).astype(float),
            across=(nodes > 1).astype(float),
            beyond=np.maximum(workers - 2, 0),
            log_iteration=np.log(times),
            log_gradient=np.log(np.where(known, gradients, 1.0)),
            known=known / max(1, known.sum()),
        )

    def error(self, x: Floats, scale: Floats) -> tuple[float, Floats]:
        """The mean squared logarithmic error with priors, and its gradient, by parameters over their scales.

        The root of it, RMSLE, has the same minimum.
        """
        a_g, b_g, a_l, b_l, a_n, b_n, gamma = x * scale
        gradient = np.maximum(a_g + b_g * self.batch, TINY_S)
        sync = self.local * (a_l + b_l * self.beyond) + self.across * (a_n + b_n * self.beyond)
        sync = np.maximum(sync, TINY_S**2)
        log_ratio = np.log(sync / gradient)
        excess = np.logaddexp(0.0, gamma * log_ratio)  # log(1 + ratio^gamma)
        off = np.log(gradient) + excess / gamma - self.log_iteration
        off_gradient = np.log(gradient) - self.log_gradient
        weight = np.exp(gamma * log_ratio - excess)  # the part of T_iter that is due to T_sync
        slope = 2 * off / len(off)
        on_gradient = (slope * (1 - weight) + 2 * off_gradient * self.known) / gradient
        on_sync = slope * weight / sync
        on_gamma = np.sum(slope * (weight * log_ratio / gamma - excess / gamma**2))
        jacobian = np.array(
            [
                on_gradient.sum(),
                (on_gradient * self.batch).sum(),
                (on_sync * self.local).sum(),
                (on_sync * self.local * self.beyond).sum(),
                (on_sync * self.across).sum(),
                (on_sync * self.across * self.beyond).sum(),
                on_gamma,
            ]
        )
        prior = np.array([0, 0, 0, SLOPE_WEIGHT, 0, SLOPE_WEIGHT, OVERLAP_WEIGHT])
        beyond_prior = x - np.array([0, 0, 0, 0, 0, 0, 1.0])
        error = np.mean(off**2) + np.sum(self.known * off_gradient**2) + np.sum(prior * beyond_prior**2)
        return float(error), jacobian * scale + 2 * prior * beyond_prior


def _bounds(data: _Data) -> tuple[Floats, Floats, Floats]:
    """Scales of the parameters, and their lower and upper bounds over these, with the paper's priors."""
    times = np.exp(data.log_iteration)
    gradients = np.where(data.known > 0, np.exp(data.log_gradient), times)
    telling = (data.known > 0) | (data.alone > 0)  # of the gradient alone; other times have more in them
    half = float(gradients[telling].mean() if telling.any() else gradients.min()) / 2
    gradients = np.where(telling, gradients, 2 * half)
    scale, low, high = np.ones(7), np.zeros(7), np.full(7, np.inf)
    low[:2] = LEAST
    scale[:2] = half, half / float(data.batch.mean())
    if len(np.unique(data.batch)) == 1:  # nothing says which part of the time grows with the batch
        low[0] = high[0] = 1.0
    for first, seen in ((2, data.local > 0), (4, data.across > 0)):
        if np.any(seen):
            spent = max(float(np.mean(times[seen] - gradients[seen])), 1e-2 * half)
            scale[first], scale[first + 1] = spent, START_SLOPE * spent
        else:
            high[first] = 0.0
        if not (np.any(seen) and np.any(data.beyond > 0)):
            high[first + 1] = 0.0
    low[6], high[6] = 1.0, MOST_GAMMA
    return scale, low, high
