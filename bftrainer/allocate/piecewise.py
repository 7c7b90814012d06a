"""Piecewise-linear functions of a node count, and how the MILP can state them. Pure.

The value of N nodes is piecewise linear with jumps: at n_min, at the curve's points, and around C_j, where
the rescale cost sets in; and with gaps, where not all sizes are allowed. Between whole numbers nothing
matters, so a function is given by its values at the ends of its linear segments.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise

import numpy as np

from bftrainer.performance.curve import Floats

Point = tuple[int, float]
"""(nodes, value)."""
Segment = tuple[Point, Point]
"""Begin and end of a linear piece of a function: two points, perhaps the same."""


class Encoding(StrEnum):
    """Formulation of a piecewise-linear function in the model."""

    SOS2 = "sos2"  # weights on the points, of which two neighbours may be above 0 (eq. 12)
    BINARIES = "binaries"  # a binary per segment; one trainer's relaxation is then the concave hull
    CONCAVE = "concave"  # weights alone: maximising keeps neighbours together where the points are concave


def encoding_of(segments: list[Segment], *, sos2: bool) -> Encoding:
    """The cheapest encoding of a function for a solver that knows special ordered sets, or does not.

    Weights on two points also make the numbers between them: sizes with gaps need binaries.
    """
    if gaps(segments):
        return Encoding.BINARIES
    if concave(segments):
        return Encoding.CONCAVE
    return Encoding.SOS2 if sos2 else Encoding.BINARIES


def segments_of(values: Floats, lo: int) -> list[Segment]:
    """The linear segments of values[lo], values[lo + 1], ..., in order and without overlap.

    Sizes whose value is -inf are in none.
    """
    m = len(values) - 1
    finite = np.isfinite(values)
    found: list[Segment] = []
    while lo <= m:
        if not finite[lo]:
            lo += 1
            continue
        hi = lo
        if lo < m and finite[lo + 1]:
            slope = values[lo + 1] - values[lo]
            line = values[lo] + slope * np.arange(m - lo + 1)
            off = np.abs(values[lo : m + 1] - line) > 1e-9 * np.maximum(1.0, np.abs(line))
            hi = lo + (int(off.argmax()) - 1 if off.any() else m - lo)
        found.append(((lo, float(values[lo])), (hi, float(values[hi]))))
        lo = hi + 1
    return found


def gaps(segments: list[Segment]) -> bool:
    """True if some size between the first and the last segment is in none."""
    return any(after[0][0] > before[1][0] + 1 for before, after in pairwise(segments))


def points_of(segments: list[Segment]) -> list[Point]:
    """The ends of the segments, each once."""
    return list(dict.fromkeys(point for segment in segments for point in segment))


def line_of(segment: Segment) -> tuple[float, float]:
    """(constant, slope) of a segment."""
    (lo, v), (hi, w) = segment
    slope = (w - v) / (hi - lo) if hi > lo else 0.0
    return v - slope * lo, slope


def concave(segments: list[Segment]) -> bool:
    """True if the points lie on a concave function."""
    slopes = [(w - v) / (n - m) for (m, v), (n, w) in pairwise(points_of(segments))]
    return all(after <= before for before, after in pairwise(slopes))


def weights_of(segments: list[Segment], at: int | None, n: int) -> list[float]:
    """The weights of the points at which segment `at` gives n nodes; all 0 for no segment."""
    weights = dict.fromkeys(points_of(segments), 0.0)
    if at is not None:
        a, b = segments[at]
        weights[b] = (n - a[0]) / (b[0] - a[0]) if b[0] > a[0] else 1.0
        weights[a] = 1.0 - weights[b] if a != b else 1.0
    return list(weights.values())
