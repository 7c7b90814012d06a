"""The sizes on which a new program is measured first. Pure."""

from __future__ import annotations

import math

from bftrainer.performance.fit import Levels

GAIN = 1.25
"""If a doubling of nodes speeds a trainer up by less than this factor, larger sizes are not profiled."""


def next_profiling_size(seen: Levels, n_min: int, n_max: int, steps: int) -> int | None:
    """The next size on which a new program is measured: n_min, twice that, ..., `steps` sizes in all.

    None if all are measured, or if the last doubling gained so little that larger sizes would not pay.
    """
    rates = {n: rate for n, rate, _ in seen}
    for k in range(steps):
        n = n_min << k
        if n > n_max or rates.get(n // 2, math.inf) < GAIN * rates.get(n // 4, 0.0):
            return None
        if n not in rates:
            return n
    return None
