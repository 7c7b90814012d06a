"""A search on a pool of nodes, trial by trial and event by event: an oracle for forecasts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from bftrainer.search.plan.experiment import Stage


def ends_at(
    times: Sequence[float], sizes: Sequence[int], stages: Sequence[Stage], rate: Callable[[int], float]
) -> float:
    """When a search that begins at 0 ends. `sizes[i]` nodes are there from `times[i]` to `times[i + 1]`.

    The trials that run share the nodes evenly; those with the least left go first where there are too few.
    `rate` says how many iterations a trial does in a second on so many nodes.
    """
    now = 0.0
    for stage in stages:
        left = [stage.iterations] * stage.trials
        while left:
            if now >= times[-1]:
                return math.inf
            i = bisect_right(times, now) - 1
            nodes, until = sizes[i], times[i + 1]
            left.sort()
            running = min(nodes, len(left))
            if running:
                speeds = [rate(nodes // running)] * running
                until = min(until, *(now + work / v for work, v in zip(left, speeds, strict=False)))
                left = [w - (until - now) * speeds[k] if k < running else w for k, w in enumerate(left)]
                left = [w for w in left if w > 1e-9 * stage.iterations]
            now = until
    return now
