"""Weights of trainers by the service that they have had, and by the work that they have left. Pure.

Service is node-time, or GPU-time where GPUs are shared out. Replays of a cluster and the engine weigh alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bftrainer.performance.curve import Floats

LEVEL_S = 60.0
"""Service (s) counts in levels, each twice the one before: long trainers on one level do not take turns."""


def by_service(served_s: npt.ArrayLike, threshold_s: float, decay: float) -> Floats:
    """1 up to a threshold of service, then the less the more a trainer has had (Pollux, equation 16)."""
    served = np.asarray(served_s, float)
    return np.asarray((threshold_s / np.maximum(served, threshold_s)) ** decay)


def by_rank(work: Sequence[float]) -> Floats:
    """1 for the one with most work, one more for the next, up to the number of all for the least.

    Of those with the same work the first counts least.
    """
    order = np.argsort(-np.asarray(work, float), kind="stable")
    found = np.empty(len(work))
    found[order] = np.arange(1, len(work) + 1)
    return found


def service_level(served_s: float) -> int:
    """The level of service."""
    return math.floor(math.log2(1 + served_s / LEVEL_S))


def expected_work(served_s: float, left_s: float | None) -> float:
    """The time (s) that the rest of a training takes on one node: as declared (`left_s`), or else equal to
    its past, as far as levels tell. Most trainings are short, and those that are not are long."""
    return LEVEL_S * (2.0 ** service_level(served_s) - 1) if left_s is None else left_s
