"""The objective metric O_j: what one sample/s of a trainer is worth (section 3.4 of the paper). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from bftrainer.errors import BftrainerError
from bftrainer.model.trainer import Points
from bftrainer.performance import curve


def throughput(points: Points, priority: float) -> float:
    """Samples/s count as they are."""
    return 1.0


def efficiency(points: Points, priority: float) -> float:
    """Samples/s relative to one node's: trainers of different speed count alike (section 5.2)."""
    return 1.0 / curve.rate(points, 1)


def score(points: Points, priority: float) -> float:
    """Efficiency times the trainer's priority score (section 3.4)."""
    return priority * efficiency(points, priority)


OBJECTIVES: Mapping[str, Callable[[Points, float], float]] = {
    "throughput": throughput,
    "efficiency": efficiency,
    "priority": score,
}
"""Objective name -> what one sample/s of a trainer with this curve and priority is worth."""


MOST_GAIN = 2.0
"""By so much n nodes may be faster than n times one node: caches explain some of it, and no more."""


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
            raise ObjectiveError(
                f"{term.strip()!r} is no objective; give one of {', '.join(OBJECTIVES)}, or a mixture "
                "with shares above 0 such as '0.7*efficiency + 0.3*priority'"
            )
        shares[name] = shares.get(name, 0.0) + share
    return tuple(shares.items())


def _plausible(points: Points) -> Points:
    """A curve of which no node adds more than `MOST_GAIN` times the speed of the first. Where a trainer is
    compared with itself alone, a faster one would win by what its script makes up."""
    most = MOST_GAIN * curve.rate(points, 1)
    if all(rate <= most * n for n, rate in points):
        return points
    return tuple((n, min(rate, most * n)) for n, rate in points)


@lru_cache(maxsize=4096)
def metric(text: str, points: Points, priority: float = 1.0, unit: Points = ()) -> Points:
    """The objective metric O_j as a curve of its own; `text` as for `parse`.

    `unit` is the curve whose one node efficiency counts in, if not `points` itself: a trainer's curves
    on several classes of nodes must be counted in one unit to be compared.
    """
    if not points:
        return points
    shares = parse(text)
    scale = sum(share * OBJECTIVES[name](unit or points, priority) for name, share in shares)
    if "throughput" not in dict(shares):
        points = _plausible(points)
    return points if scale == 1.0 else tuple((n, rate * scale) for n, rate in points)
