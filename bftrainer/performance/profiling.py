"""The sizes on which a new program is measured first. Pure."""

from __future__ import annotations

import math

from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.performance.fit import Levels

GAIN = 1.25
"""If a doubling of nodes speeds a trainer up by less than this factor, larger sizes are not profiled."""


def next_profiling_size(
    seen: Levels, n_min: int, n_max: int, steps: int, sizes: AllowedSizes = EVERY_SIZE
) -> int | None:
    """The next size on which a new program is measured: n_min, twice that, ..., `steps` sizes in all. Of
    `sizes`, it is the one next to twice the size before.

    None if all are measured, or if the last doubling gained so little that larger sizes would not pay.
    """
    rates = {n: rate for n, rate, _ in seen}
    before, last, n = n_min // 4, n_min // 2, n_min
    for _ in range(steps):
        if not 0 < n <= n_max or rates.get(last, math.inf) < GAIN * rates.get(before, 0.0):
            return None
        if n not in rates:
            return n
        before, last, n = last, n, sizes.doubled(n)
    return None
