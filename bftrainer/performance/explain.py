"""The expected speed of a trainer on each size and its standard error, for users. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.trainer import Points
from bftrainer.performance import curve
from bftrainer.performance.fit import fit, levels, prior_rates
from bftrainer.performance.observe import Sizes


class EstimateSource(StrEnum):
    """Source of an estimate."""

    OBSERVED = "observed"  # windows on this size
    PREDICTED = "predicted"  # windows on other sizes
    GIVEN = "given"  # the spec's curve
    ASSUMED = "assumed"  # what is typical of other trainers


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """Samples/s on one size, from `windows` windows. `error` is one standard error, relative to the rate;
    None if the trainer was never measured."""

    nodes: int
    rate: float
    error: float | None
    windows: int
    source: EstimateSource


def size_estimates(
    seen: Sizes, prior: Points, n_min: int, n_max: int, typical: float, sizes: AllowedSizes = EVERY_SIZE
) -> tuple[SizeEstimate, ...]:
    """Estimates of the sizes that were seen or given, and of n_min, twice that, ..., n_max; all of `sizes`.

    `seen` are the trainer's windows by size, `prior` is its given curve (or empty), `typical` are the
    samples/s on one node that are assumed where nothing is known.
    """
    counts = {n: windows.count for n, windows in seen}
    at = {n for n in (*counts, *(n for n, _ in prior), n_max) if n <= n_max and sizes.floor(n) == n}
    size = n_min
    while 0 < size <= n_max:
        at.add(size)
        size = sizes.doubled(size)
    nodes = np.array(sorted(at))
    if not seen:
        source, points = (
            (EstimateSource.GIVEN, prior) if prior else (EstimateSource.ASSUMED, curve.linear(typical, n_max))
        )
        rates = prior_rates(points, nodes)
        return tuple(
            SizeEstimate(n, rate, None, 0, source)
            for n, rate in zip(nodes.tolist(), rates.tolist(), strict=True)
        )
    found = fit(levels(seen), prior, n_max)
    return tuple(
        SizeEstimate(
            n,
            rate,
            error_,
            counts.get(n, 0),
            EstimateSource.OBSERVED if n in counts else EstimateSource.PREDICTED,
        )
        for n, rate, error_ in zip(
            nodes.tolist(), found.rate(nodes).tolist(), found.error(nodes).tolist(), strict=True
        )
    )
