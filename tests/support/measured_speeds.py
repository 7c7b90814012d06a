"""Speeds and observations for tests of what is learnt of trainers."""

from __future__ import annotations

import numpy as np

from bftrainer.model.trainer import Observations
from bftrainer.performance import fit, observe

FEW = (1, 2, 4, 8, 16)


def amdahl(n: int, c1: float, one: float = 100.0) -> float:
    """Samples/s on n nodes by Amdahl's law, with `one` on one node."""
    return one * n / (1 + c1 * (n - 1))


def seen(rates: dict[int, list[float]]) -> Observations:
    """What is kept of windows with these samples/s, by size."""
    found = Observations()
    for n, windows in rates.items():
        for rate in windows:
            found = observe.with_speed(found, None, n, rate)
    return found


def levels(rates: dict[int, list[float]]) -> fit.Levels:
    """The same as `fit` takes it."""
    return fit.levels(observe.sizes(seen(rates)))


def at(model: fit.Fit, n: int, *, optimistic: bool = False) -> float:
    """Samples/s on n nodes by a fitted model."""
    return float(model.rate(np.array([float(n)]), optimistic=optimistic)[0])
