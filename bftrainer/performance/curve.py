"""Scalability curves: nodes -> samples/s, piecewise linear between measured points.

A curve is a tuple of (nodes, samples/s) pairs, see `model.trainer.Points`. It starts at (0, 0), which is
implied, and stays flat beyond its last point: no measurement shows that more nodes would help.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bftrainer.errors import BftrainerError
from bftrainer.messages.specs import CURVE
from bftrainer.model.trainer import Points

Floats = npt.NDArray[np.float64]


SHORT, LONG = 2**10, 2**14
"""Most nodes in tables of which many are kept: users may ask for a million nodes, on any machine. Fewer
longer tables are kept, for large machines, and none of the longest."""


class CurveError(BftrainerError, ValueError):
    """The points make no curve. The message names the point and what to do."""


def make(points: Iterable[tuple[int, float]]) -> Points:
    """The curve through these points (nodes, samples/s), checked and sorted.

    Raises:
        CurveError: no point, nodes not above 0, a rate not above 0, or two points for one node count.
    """
    pairs = sorted((int(n), float(rate)) for n, rate in points)
    if not pairs:
        raise CurveError(CURVE.say(what="no point"))
    if pairs[0][0] <= 0:
        raise CurveError(CURVE.say(what=f"a point at {pairs[0][0]} nodes"))
    for (a, _), (b, _) in pairwise(pairs):
        if a == b:
            raise CurveError(CURVE.say(what=f"two points for {a} nodes"))
    for n, rate in pairs:
        if not (0 < rate < float("inf")):
            raise CurveError(CURVE.say(what=f"{rate} samples/s on {n} nodes"))
    return tuple(pairs)


def table(points: Points, n_max: int) -> Floats:
    """The rate on 0..n_max nodes, shape (n_max + 1,), read-only; linear between points, flat beyond."""
    if n_max <= SHORT:
        return _short(points, n_max)
    return _long(points, n_max) if n_max <= LONG else _made(points, n_max)


def _made(points: Points, n_max: int) -> Floats:
    xs = [0, *(n for n, _ in points)]
    ys = [0.0, *(rate for _, rate in points)]
    rates = np.interp(np.arange(n_max + 1), xs, ys)
    rates.setflags(write=False)
    return rates


_short = lru_cache(maxsize=4096)(_made)
_long = lru_cache(maxsize=1024)(_made)


def rate(points: Points, n: int) -> float:
    """Samples/s on `n` >= 0 nodes."""
    if n <= SHORT:
        return float(table(points, max(n, 1))[n])
    after = bisect_left(points, (n, 0.0))
    if after == len(points):
        return points[-1][1] if points else 0.0
    (x, y), (end, last) = points[after - 1] if after else (0, 0.0), points[after]
    return (last - y) / (end - x) * (n - x) + y


def linear(rate_of_one: float, n_max: int) -> Points:
    """The curve of a trainer that was never measured: every node adds `rate_of_one` samples/s."""
    return ((n_max, rate_of_one * n_max),)
