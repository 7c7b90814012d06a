"""What is expected of a trainer on each size, for people. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bftrainer.model.trainer import Points
from bftrainer.performance import curve
from bftrainer.performance.fit import fit, levels, prior_rates
from bftrainer.performance.observe import Sizes


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """Samples/s on one size. `error` is relative (one standard error); None: nothing was measured."""

    nodes: int
    rate: float
    error: float | None
    windows: int
    source: str  # observed, predicted, given or assumed


def size_estimates(
    seen: Sizes, prior: Points, n_min: int, n_max: int, typical: float
) -> tuple[SizeEstimate, ...]:
    """What is expected of the sizes seen, of those given, and of n_min, twice that, ..., n_max."""
    counts = {n: windows.count for n, windows in seen}
    at = {n for n in (*counts, *(n for n, _ in prior), n_max) if n <= n_max}
    at |= {n_min << k for k in range((n_max // n_min).bit_length())}
    nodes = np.array(sorted(at))
    if not seen:
        source, points = ("given", prior) if prior else ("assumed", curve.linear(typical, n_max))
        rates = prior_rates(points, nodes)
        return tuple(
            SizeEstimate(n, rate, None, 0, source)
            for n, rate in zip(nodes.tolist(), rates.tolist(), strict=True)
        )
    found = fit(levels(seen), prior, n_max)
    return tuple(
        SizeEstimate(n, rate, error_, counts.get(n, 0), "observed" if n in counts else "predicted")
        for n, rate, error_ in zip(
            nodes.tolist(), found.rate(nodes).tolist(), found.error(nodes).tolist(), strict=True
        )
    )
