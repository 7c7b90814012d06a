"""Speeds on unseen sizes, estimated from observed ones. Pure.

**Speed.** The speed on an observed size is the median of its latest windows, so that a window that a stall
or a checkpoint disturbed does not move it. For all other sizes a model is fitted to the observed ones:

    rate(n) = s * prior(n) / (c0 + c1 (n - 1)),    c0 >= c1

`prior` is the spec's curve, or a line; with a line this is Amdahl's law and never falls. The fit is a
robust ridge regression of the slow-down against the prior: each size counts by how well it is known, and
less if it is far from the model. The ridge says that c1 is near 0, more strongly where a curve is given.
Between observed sizes the model is corrected by how far these are from it.

**Exploring.** Beyond the largest observed size, c1 is taken one standard error lower: optimistic, so that
larger sizes are tried where that may pay. But no plan may ask for more than twice the largest observed size
(or n_min, or what the given curve covers), or the next size that the trainer allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

import numpy as np

from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.trainer import Observed, Points
from bftrainer.performance import curve
from bftrainer.performance.curve import Floats
from bftrainer.performance.observe import Sizes, error

MODEL_ERROR = 0.03
"""Least error of the model at a size, relative to its speed."""
SLOPE = 0.2
"""Expected deviation from linear of a trainer without a curve: c1 over c0, standard deviation."""
BEND = 0.1
"""Expected error of a given curve at its last point, beside its first: standard deviation."""
HUBER = 1.5
"""Standard errors from the model beyond which a size counts less."""
DIFFERENCE = 0.1
"""An estimate that differs by this share anywhere is worth a new plan."""
ROUNDS = 5
"""Rounds of reweighting in the robust regression."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The model fitted to observed sizes. `cov` is (var c0, cov, var c1).

    `nodes` are the sizes that were observed, `errors` the relative errors there, and `off` the logs of
    observed over modelled rates.
    """

    prior: Points
    scale: float
    c0: float
    c1: float
    cov: tuple[float, float, float]
    nodes: Floats
    errors: Floats
    off: Floats

    def model(self, n: Floats, *, optimistic: bool = False) -> Floats:
        """Samples/s by the model alone; if `optimistic`, with a smaller c1 beyond the largest observed
        size."""
        c1 = min(self.c1, max(0.0, self.c1 - math.sqrt(self.cov[2]))) if optimistic else self.c1
        bend = np.minimum(n, self.nodes[-1])
        slowdown = self.c0 + self.c1 * (bend - 1) + c1 * (n - bend)
        return np.asarray(self.scale * prior_rates(self.prior, n) / slowdown)

    def rate(self, n: Floats, *, optimistic: bool = False) -> Floats:
        """Samples/s on `n` nodes: as observed, or by the model, corrected by the sizes next to it."""
        off = np.interp(np.log(n), np.log(self.nodes), self.off)
        return np.asarray(self.model(n, optimistic=optimistic) * np.exp(off))

    def error(self, n: Floats) -> Floats:
        """The relative standard error of `rate`."""
        x, (var0, cov, var1) = n - 1, self.cov
        own = np.sqrt(np.maximum(0.0, var0 + 2 * x * cov + x * x * var1)) / (self.c0 + self.c1 * x)
        where = np.minimum(np.searchsorted(self.nodes, n), len(self.nodes) - 1)
        seen = self.nodes[where] == n
        return np.where(seen, self.errors[where], np.hypot(own, MODEL_ERROR))


def prior_rates(prior: Points, n: Floats) -> Floats:
    """The prior's samples/s on `n` nodes; a line of slope 1 without a prior."""
    if not prior:
        return n
    nodes, rates = np.array([(0, 0.0), *prior]).T
    return np.asarray(np.interp(n, nodes, rates))


Levels = tuple[tuple[int, float, float], ...]
"""Observations by size: (nodes, samples/s, relative standard error)."""


def levels(seen: Sizes) -> Levels:
    """The median of each size's windows, and how well it is known."""
    return tuple((n, *_level(windows)) for n, windows in seen)


@lru_cache(maxsize=16384)
def _level(windows: Observed) -> tuple[float, float]:
    return median(windows.recent), error(windows)


@lru_cache(maxsize=4096)
def fit(seen: Levels, prior: Points, n_max: int) -> Fit:
    """The model of what was `seen`, which must not be empty, against `prior` (a line, if that is empty).

    Its rates are above 0 up to `n_max` nodes. c1 is below 0 only with a prior.
    """
    nodes, rates, errors = np.array(seen).T
    slowdown = prior_rates(prior, nodes) / rates
    unit = median(slowdown.tolist())
    v, x = np.clip(slowdown / unit, 1e-3, 1e3), nodes - 1
    sigma = v * np.hypot(errors, MODEL_ERROR)
    tau = BEND / max(1, prior[-1][0] - 1) if prior else SLOPE
    w, reach = sigma**-2, max(n_max - 1, x[-1])  # others of the program may have been on more nodes
    for _ in range(ROUNDS):  # ridge regression about the weighted means
        total = w.sum()
        x0, v0 = w @ x / total, w @ v / total
        known = w @ (x - x0) ** 2 + tau**-2
        c1 = min(w @ ((x - x0) * v) / known, v0 / (1 + x0))
        if not prior:
            c1 = max(c1, 0.0)
        elif reach > x0:
            c1 = max(c1, -0.9 * v0 / (reach - x0))
        c0 = v0 - c1 * x0
        before, w = w, sigma**-2 / np.maximum(1.0, abs(v - c0 - c1 * x) / sigma / HUBER)
        if (w == before).all():
            break
    cov = (float(1 / total + x0**2 / known), float(-x0 / known), float(1 / known))
    found = Fit(prior, 1.0 / unit, float(c0), float(c1), cov, nodes, errors, np.zeros(len(seen)))
    return replace(found, off=np.log(rates / found.model(nodes)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A curve, optimistic beyond what was observed, and the most nodes that a plan may ask for.

    `goodput`: progress on the same numbers of nodes, in samples of the initial batch per second, where the
    batch adapts and its noise is known; empty: as `points`, each sample counts as any other.
    """

    points: Points
    n_max: int
    goodput: Points = ()

    @property
    def progress(self) -> Points:
        """The goodput where it is known, or else the speed."""
        return self.goodput or self.points


@lru_cache(maxsize=4096)
def estimated(
    seen: Levels, prior: Points, n_min: int, n_max: int, typical: float, sizes: AllowedSizes = EVERY_SIZE
) -> Estimate:
    """The estimate of a trainer with limits n_min and n_max that allows these sizes.

    `seen` are the sizes on which it was measured, `prior` is its given curve (or empty), `typical` are the
    samples/s on one node that are assumed where nothing is known.
    """
    largest = max((n for n, *_ in seen), default=0)
    following = sizes.above(largest) if largest else 0  # it may be more than twice as large
    bound = min(n_max, max(2 * max(n_min, largest), following, prior[-1][0] if prior else 0))
    if not seen:
        return Estimate(prior or curve.linear(typical, bound), bound)
    found = fit(seen, prior, bound)
    grid = _grid(bound, {n for n, *_ in seen} | {n for n, _ in prior})
    return Estimate(
        tuple(zip(grid, found.rate(np.array(grid), optimistic=True).tolist(), strict=True)), bound
    )


def _grid(bound: int, also: Iterable[int]) -> list[int]:
    """Sizes up to `bound` between which a line is near enough to the model: those of `also` are among
    them."""
    steps = {n for n in also if n <= bound} | set(range(1, min(bound, 16) + 1)) | {bound}
    n = 16.0
    while n < bound:
        steps.add(int(n))
        n *= 1.2
    return sorted(steps)


def differs_enough(old: Estimate, new: Estimate, *, in_goodput: bool = False) -> bool:
    """True if a plan made by `old` should be recomputed, by speed or, if that decides, goodput too.

    So it is if the plan may ask for more nodes, or if the speed on any size has changed by `DIFFERENCE`.
    Smaller changes are not worth what rescaling costs.
    """
    if new.n_max > old.n_max:
        return True
    return _differ(old.points, new.points) or (in_goodput and _differ(old.progress, new.progress))


def _differ(old: Points, new: Points) -> bool:
    nodes, rates = np.array(new).T
    before = prior_rates(old, nodes)
    return bool(np.any(abs(rates - before) > DIFFERENCE * before))


def one(seen: Levels, prior: Points, n_max: int) -> float | None:
    """Samples/s on one node; None if nothing is known."""
    if seen:
        return float(fit(seen, prior, n_max).rate(np.ones(1))[0])
    return curve.rate(prior, 1) if prior else None
