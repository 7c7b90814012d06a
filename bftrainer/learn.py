"""What is believed of a trainer from what was observed of it: speeds on unseen sizes, rescale costs. Pure.

**Speed.** An observed size has the median of its latest windows: a window that a stall or a checkpoint
disturbed does not move it. For all other sizes a model is fitted to the observed ones:

    rate(n) = s * prior(n) / (c0 + c1 (n - 1)),    c0 >= c1

`prior` is the spec's curve, or a line, with which this is Amdahl's law and never falls. The line that is
fitted is how much slower than the prior it is (in log terms: each size counts by how well it is known, and
less if it is far off). That c1 is near 0 is a pseudo-observation, the stronger where a curve is given.
Between observed sizes the model is corrected by what they differ from it.

**Exploring.** Beyond the largest observed size, c1 is taken one standard error lower: optimistic, so that
larger sizes are tried where that may pay. But nothing above twice the largest observed size (or n_min,
or what the given curve covers) may be asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

import numpy as np

from bftrainer import curve
from bftrainer.curve import Floats
from bftrainer.model import Cost, Observations, Observed, Points, RescaleCosts

KEPT = 15
"""So many of the latest measurements of a quantity count."""
SPREAD = 0.1
"""The relative spread of windows that is expected before it has been seen."""
MODEL_ERROR = 0.03
"""How well the model can describe a size at best, relative to its speed."""
SLOPE = 0.2
"""How far from linear a trainer without a curve may be expected to be: c1 over c0, standard deviation."""
BEND = 0.1
"""How far a given curve is expected to be off at its last point, beside its first: standard deviation."""
HUBER = 1.5
"""Sizes that are further from the model than so many standard errors count less."""
NEWS = 0.1
"""A belief that differs by this share anywhere is worth a new plan."""
ROUNDS = 5

Sizes = tuple[tuple[int, Observed], ...]
"""What was seen of one trainer on one class of nodes: (nodes, windows), nodes ascending."""


# --- one quantity --------------------------------------------------------------------------------


def added(observed: Observed, value: float) -> Observed:
    """With one more measurement; one that is no number, or below 0, is none."""
    if not 0 <= value < math.inf:
        return observed
    return Observed(observed.count + 1, (*observed.recent, value)[-KEPT:])


def error(observed: Observed) -> float:
    """The standard error of the median, relative to it; the first windows are expected to vary."""
    k, middle = len(observed.recent), median(observed.recent)
    if middle <= 0:
        return 0.0
    spread = 1.4826 * median(abs(value / middle - 1.0) for value in observed.recent)
    return math.sqrt((SPREAD**2 + (k - 1) * spread**2) / k / k)


# --- all that was observed of a trainer ----------------------------------------------------------


def with_speed(seen: Observations, node_class: str | None, n: int, rate: float) -> Observations:
    """With one more window: so many samples/s on `n` nodes of a class. Not above 0: nothing is learnt."""
    if n < 1 or not 0 < rate < math.inf:
        return seen
    here = dict(sizes(seen, node_class))
    here[n] = added(here.get(n, Observed()), rate)
    elsewhere = tuple(speed for speed in seen.speeds if speed[0] != node_class)
    return replace(seen, speeds=(*elsewhere, *((node_class, *size) for size in sorted(here.items()))))


def with_costs(seen: Observations, up: Cost | None, down: Cost | None) -> Observations:
    """With what one more rescale cost."""
    if up is not None:
        seen = replace(
            seen,
            up_stall_s=added(seen.up_stall_s, up.stall_s),
            up_init_s=added(seen.up_init_s, up.init_s),
        )
    return seen if down is None else replace(seen, down_stall_s=added(seen.down_stall_s, down.stall_s))


def merged(seen: Observations, more: Observations) -> Observations:
    """With what was observed of another trainer."""
    for name, n, windows in more.speeds:
        for rate in windows.recent:
            seen = with_speed(seen, name, n, rate)
    for stall, init in zip(more.up_stall_s.recent, more.up_init_s.recent, strict=True):
        seen = with_costs(seen, Cost(stall_s=stall, init_s=init), None)
    for stall in more.down_stall_s.recent:
        seen = with_costs(seen, None, Cost(stall_s=stall))
    return seen


def sizes(seen: Observations, node_class: str | None = None) -> Sizes:
    """The speeds that were seen on one class of nodes."""
    return tuple((n, windows) for name, n, windows in seen.speeds if name == node_class)


def costs(seen: Observations, given: RescaleCosts | None, assumed: RescaleCosts) -> RescaleCosts:
    """What rescaling is believed to cost: given costs count as one more measurement, assumed ones only
    where there is none."""

    def believed(observed: Observed, *prior: float, otherwise: float) -> float:
        values = (*prior, *observed.recent)
        return median(values) if values else otherwise

    known = [] if given is None else [given]
    return RescaleCosts(
        up=Cost(
            stall_s=believed(seen.up_stall_s, *(c.up.stall_s for c in known), otherwise=assumed.up.stall_s),
            init_s=believed(seen.up_init_s, *(c.up.init_s for c in known), otherwise=assumed.up.init_s),
        ),
        down=Cost(
            stall_s=believed(
                seen.down_stall_s, *(c.down.stall_s for c in known), otherwise=assumed.down.stall_s
            )
        ),
    )


def typical_costs(seen: Iterable[Observations], assumed: RescaleCosts) -> RescaleCosts:
    """What rescaling costs most trainers, of those that it was measured of; assumed where it never was."""
    found = list(seen)

    def over_all(pick: Callable[[Observations], Observed], otherwise: float) -> float:
        values = [median(pick(each).recent) for each in found if pick(each).recent]
        return median(values) if values else otherwise

    return RescaleCosts(
        up=Cost(
            stall_s=over_all(lambda each: each.up_stall_s, assumed.up.stall_s),
            init_s=over_all(lambda each: each.up_init_s, assumed.up.init_s),
        ),
        down=Cost(stall_s=over_all(lambda each: each.down_stall_s, assumed.down.stall_s)),
    )


# --- the model -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fit:
    """The model fitted to observed sizes. `cov` is (var c0, cov, var c1).

    `nodes`, `rates` and `errors` (relative) are what was observed, `off` the logs of observed over model.
    """

    prior: Points
    scale: float
    c0: float
    c1: float
    cov: tuple[float, float, float]
    nodes: Floats
    rates: Floats
    errors: Floats
    off: Floats

    def model(self, n: Floats, *, hopeful: bool = False) -> Floats:
        """Samples/s by the model alone; if `hopeful`, optimistic beyond the largest observed size."""
        c1 = min(self.c1, max(0.0, self.c1 - math.sqrt(self.cov[2]))) if hopeful else self.c1
        bend = np.minimum(n, self.nodes[-1])
        slowdown = self.c0 + self.c1 * (bend - 1) + c1 * (n - bend)
        return np.asarray(self.scale * _prior(self.prior, n) / slowdown)

    def rate(self, n: Floats, *, hopeful: bool = False) -> Floats:
        """Samples/s on `n` nodes: as observed, or by the model, corrected by the sizes next to it."""
        off = np.interp(np.log(n), np.log(self.nodes), self.off)
        return np.asarray(self.model(n, hopeful=hopeful) * np.exp(off))

    def error(self, n: Floats) -> Floats:
        """The relative standard error of `rate`."""
        x, (var0, cov, var1) = n - 1, self.cov
        own = np.sqrt(np.maximum(0.0, var0 + 2 * x * cov + x * x * var1)) / (self.c0 + self.c1 * x)
        where = np.minimum(np.searchsorted(self.nodes, n), len(self.nodes) - 1)
        seen = self.nodes[where] == n
        return np.where(seen, self.errors[where], np.hypot(own, MODEL_ERROR))


def _prior(prior: Points, n: Floats) -> Floats:
    if not prior:
        return n
    nodes, rates = np.array([(0, 0.0), *prior]).T
    return np.asarray(np.interp(n, nodes, rates))


Levels = tuple[tuple[int, float, float], ...]
"""What was seen, in short: (nodes, samples/s, relative standard error)."""


def levels(seen: Sizes) -> Levels:
    """Each size's median and how well it is known."""
    return tuple((n, *_level(windows)) for n, windows in seen)


@lru_cache(maxsize=16384)
def _level(windows: Observed) -> tuple[float, float]:
    return median(windows.recent), error(windows)


@lru_cache(maxsize=1024)
def fit(seen: Levels, prior: Points, n_max: int) -> Fit:
    """The model of what was `seen`, which is not empty; without `prior`, of a line. It is above 0 up to
    `n_max`, and c1 is below 0 only with a prior."""
    nodes, rates, errors = np.array(seen).T
    slowdown = _prior(prior, nodes) / rates
    unit = float(np.median(slowdown))
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
        w = sigma**-2 / np.maximum(1.0, abs(v - c0 - c1 * x) / sigma / HUBER)
    cov = (float(1 / total + x0**2 / known), float(-x0 / known), float(1 / known))
    found = Fit(prior, 1.0 / unit, float(c0), float(c1), cov, nodes, rates, errors, np.zeros(len(seen)))
    return replace(found, off=np.log(rates / found.model(nodes)))


# --- what the allocators are told ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Belief:
    """A curve, optimistic beyond what was observed, and the most nodes that may be asked for."""

    points: Points
    n_max: int


@lru_cache(maxsize=4096)
def believed(seen: Levels, prior: Points, n_min: int, n_max: int, typical: float) -> Belief:
    """What to believe of a trainer: the sizes seen, its given curve (or none), its limits.

    `typical` are the samples/s on one node of a trainer of which nothing is known at all.
    """
    largest = max((n for n, *_ in seen), default=0)
    bound = min(n_max, max(2 * max(n_min, largest), prior[-1][0] if prior else 0))
    if not seen:
        return Belief(prior or curve.linear(typical, bound), bound)
    found = fit(seen, prior, bound)
    grid = _grid(bound, {n for n, *_ in seen} | {n for n, _ in prior})
    return Belief(tuple(zip(grid, found.rate(np.array(grid), hopeful=True).tolist(), strict=True)), bound)


def _grid(bound: int, also: Iterable[int]) -> list[int]:
    """Sizes between which a line is near enough to the model."""
    steps = {n for n in also if n <= bound} | set(range(1, min(bound, 16) + 1)) | {bound}
    n = 16.0
    while n < bound:
        steps.add(int(n))
        n *= 1.2
    return sorted(steps)


def news(old: Belief, new: Belief) -> bool:
    """Whether a plan made by `old` should be made anew: more may be asked for, or it is worth another
    amount. Nearly the same is not: rescaling costs."""
    if new.n_max > old.n_max:
        return True
    nodes, rates = np.array(new.points).T
    return bool(np.any(abs(rates / _prior(old.points, nodes) - 1.0) > NEWS))


def one(seen: Levels, prior: Points, n_max: int) -> float | None:
    """Samples/s on one node, as far as anything is known."""
    if seen:
        return float(fit(seen, prior, n_max).rate(np.ones(1))[0])
    return curve.rate(prior, 1) if prior else None


# --- for people ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Estimate:
    """Samples/s on one size. `error` is relative (one standard error); None: nothing was measured."""

    nodes: int
    rate: float
    error: float | None
    windows: int
    source: str  # observed, predicted, given or assumed


def estimates(seen: Sizes, prior: Points, n_min: int, n_max: int, typical: float) -> tuple[Estimate, ...]:
    """What is expected of the sizes seen, of those given, and of n_min, twice that, ..., n_max."""
    counts = {n: windows.count for n, windows in seen}
    at = {n for n in (*counts, *(n for n, _ in prior), n_max) if n <= n_max}
    at |= {n_min << k for k in range((n_max // n_min).bit_length())}
    nodes = np.array(sorted(at))
    if not seen:
        source, points = ("given", prior) if prior else ("assumed", curve.linear(typical, n_max))
        rates = _prior(points, nodes)
        return tuple(
            Estimate(n, rate, None, 0, source) for n, rate in zip(nodes.tolist(), rates.tolist(), strict=True)
        )
    found = fit(levels(seen), prior, n_max)
    return tuple(
        Estimate(n, rate, error_, counts.get(n, 0), "observed" if n in counts else "predicted")
        for n, rate, error_ in zip(
            nodes.tolist(), found.rate(nodes).tolist(), found.error(nodes).tolist(), strict=True
        )
    )


# --- a profiling phase ---------------------------------------------------------------------------

GAIN = 1.25
"""Where a doubling gains less than this, larger sizes are not profiled."""


def rung(seen: Levels, n_min: int, n_max: int, steps: int) -> int | None:
    """The next size that a new trainer is to be measured on: n_min, twice that, ..., `steps` in all.

    None where that is done, or where the last doubling gained so little that going on would not pay.
    """
    rates = {n: rate for n, rate, _ in seen}
    for k in range(steps):
        n = n_min << k
        if n > n_max or rates.get(n // 2, math.inf) < GAIN * rates.get(n // 4, 0.0):
            return None
        if n not in rates:
            return n
    return None
