"""The objective metric O_j: the worth of a trainer on n nodes (section 3.4 of the paper). Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.settings import NO_OBJECTIVE
from bftrainer.model.trainer import Points
from bftrainer.performance import curve

Objective = Callable[[Points, Points, float], Points]
"""A trainer's speeds by size, those whose one node is the unit, its priority -> the worth of each size."""
NO_SPEED = 0.1
"""The speed-up that a trainer without nodes counts as where it would count without end."""
MOST_GAIN = 2.0
"""Factor by which n nodes may exceed n times one node: caches explain no more."""


def throughput(speeds: Points, unit: Points, priority: float) -> Points:
    """Samples/s count as they are."""
    return speeds


def efficiency(speeds: Points, unit: Points, priority: float) -> Points:
    """Samples/s relative to one node's: trainers of different speed count alike (section 5.2)."""
    return _scaled(_plausible(speeds), 1.0 / curve.rate(unit, 1))


def goodput(speeds: Points, unit: Points, priority: float) -> Points:
    """The speed-up over one node, as `efficiency`, where speeds are goodputs (Pollux, equation 15)."""
    return efficiency(speeds, unit, priority)


def powered(speedups: Points, power: float) -> Points:
    """Speed-ups as they count in their p-norm, as in the final version of Pollux: the sum over trainers is
    largest where the norm is. It is the mean with a power of 1, the geometric mean with 0, the harmonic one
    with -1.

    Up to 0 a trainer without nodes counts as one of speed-up `NO_SPEED`, or it would outweigh all others.
    """
    if power > 0:
        return tuple((n, speedup**power) for n, speedup in speedups)
    if power == 0:
        return tuple((n, math.log1p(speedup / NO_SPEED)) for n, speedup in speedups)
    return tuple((n, NO_SPEED**power - (speedup + NO_SPEED) ** power) for n, speedup in speedups)


def score(speeds: Points, unit: Points, priority: float) -> Points:
    """Efficiency times the trainer's priority score (section 3.4)."""
    return _scaled(_plausible(speeds), priority * (1.0 / curve.rate(unit, 1)))


def _scaled(speeds: Points, factor: float) -> Points:
    return tuple((n, rate * factor) for n, rate in speeds)


def _plausible(speeds: Points) -> Points:
    """A curve of which no node adds more than `MOST_GAIN` times the speed of the first. Where a trainer is
    compared with itself alone, a faster one would win by what its script makes up."""
    most = MOST_GAIN * curve.rate(speeds, 1)
    return tuple((n, min(rate, most * n)) for n, rate in speeds)


OBJECTIVES: Mapping[str, Objective] = {
    "throughput": throughput,
    "efficiency": efficiency,
    "priority": score,
    "goodput": goodput,
}
"""Objective name -> its function. A mixture is the weighted sum of its parts' worths."""


class ObjectiveError(BftrainerError, ValueError):
    """The text names no objective. The message lists those that exist."""


@lru_cache(maxsize=64)
def parse(text: str) -> tuple[tuple[str, float], ...]:
    """`efficiency`, or a weighted mixture such as `0.7*efficiency + 0.3*priority`: (name, share) pairs.

    Raises:
        ObjectiveError: an unknown name, or a share that is no number above 0.
    """
    shares: dict[str, float] = {}
    for term in text.split("+"):
        number, star, name = term.rpartition("*")
        name = name.strip()
        try:
            share = float(number) if star else 1.0
        except ValueError:
            share = 0.0
        if name not in OBJECTIVES or not 0 < share < float("inf"):
            raise ObjectiveError(NO_OBJECTIVE.say(given=term.strip(), known=", ".join(OBJECTIVES)))
        shares[name] = shares.get(name, 0.0) + share
    return tuple(shares.items())


def counts_goodput(text: str) -> bool:
    """True if goodput is a part of an objective; `text` as for `parse`."""
    return any(name == "goodput" for name, _ in parse(text))


@lru_cache(maxsize=4096)
def metric(
    text: str,
    points: Points,
    priority: float = 1.0,
    unit: Points = (),
    *,
    progress: Points = (),
    progress_unit: Points = (),
    power: float = 1.0,
) -> Points:
    """The objective metric O_j as a curve of its own; `text` as for `parse`.

    `unit` is the curve whose one node efficiency counts in, if not `points` itself: a trainer's curves
    on several classes of nodes must be counted in one unit to be compared. Goodput counts by `progress`, on
    the same numbers of nodes, and its unit; by `points`, with efficiency 1, where that is empty. `power`: as
    for `powered`.
    """
    if not points:
        return points
    speeds = points, unit or points
    goodputs = (progress, progress_unit or progress) if progress else speeds
    parts = [
        (share, powered(goodput(*goodputs, priority), power))
        if name == "goodput"
        else (share, OBJECTIVES[name](*speeds, priority))
        for name, share in parse(text)
    ]
    if len(parts) == 1 and parts[0][0] == 1.0:
        return parts[0][1]
    return tuple((n, sum(share * worth[i][1] for share, worth in parts)) for i, (n, _) in enumerate(points))
