"""Measurements of one trainer: what is kept, and how well a quantity is known. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

from bftrainer.model.trainer import Cost, Observations, Observed

KEPT = 15
"""So many of the latest measurements of a quantity count."""
SPREAD = 0.1
"""The relative spread of windows that is expected before it has been seen."""

Sizes = tuple[tuple[int, Observed], ...]
"""What was seen of one trainer on one class of nodes: (nodes, windows), nodes ascending."""


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
