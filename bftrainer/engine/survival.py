"""Estimates how long nodes will stay, from how long nodes have stayed. Pure.

Ages are counted in bins of doubling length. `Survival` keeps, per bin, how many nodes left at that age and
how long nodes were observed in it; their ratio is the hazard (departures per second). This is a
piecewise-constant estimate in the way of Kaplan and Meier: the time of nodes that are still there counts as
observed. Old observations fade slowly, so that the estimate follows the machine from day to night.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bftrainer.performance.curve import Floats

EDGES = (0.0, *(10.0 * 2**k for k in range(15)))
"""Lower edges of the bins of age (s); the last, from 45 hours on, has no end."""
MEMORY = 2000.0
"""Departures after which an observation counts half."""
PRIOR_S = 600.0
"""Mean stay of nodes (s) that is assumed before any has left. Counts as one departure per bin."""
LONGEST_S = 3600.0
"""The longest forward-looking time."""
SHORTEST_S = 10.0
"""The shortest one."""


@dataclass(frozen=True, slots=True)
class Survival:
    """Departures and time observed (s), per bin of age."""

    left: tuple[float, ...] = (0.0,) * len(EDGES)
    seen_s: tuple[float, ...] = (0.0,) * len(EDGES)


def observed(survival: Survival, ages: Iterable[float]) -> Survival:
    """The estimate after nodes have left at these ages (s)."""
    gone = np.array(list(ages))
    fade = 0.5 ** (len(gone) / MEMORY)
    left = np.bincount(_bins(gone), minlength=len(EDGES))
    return Survival(
        tuple(fade * np.array(survival.left) + left),
        tuple(fade * np.array(survival.seen_s) + _time_in_bins(gone).sum(axis=0)),
    )


def stay(survival: Survival, ages: Floats, horizon_s: float) -> Floats:
    """The probability that nodes of these ages (s) stay for another `horizon_s`."""
    hazard = _hazard(survival, ages)
    spent = _time_in_bins(ages + horizon_s) - _time_in_bins(ages)
    return np.asarray(np.exp(-spent @ hazard))


def forward_time(survival: Survival, ages: Floats) -> float:
    """T_fwd (s): how much longer a node of the pool is expected to stay, on average over these ages (s).

    At least `SHORTEST_S` and at most `LONGEST_S`.
    """
    if not len(ages):
        return SHORTEST_S
    hazard = _hazard(survival, ages)
    bins, weights = np.unique(_bins(ages), return_counts=True)
    typical = np.array([ages[_bins(ages) == b].mean() for b in bins])  # one age for all nodes of a bin
    steps = LONGEST_S * np.linspace(0.0, 1.0, 25) ** 3  # finer at first, where many leave soon
    later = _time_in_bins((typical + steps[:, None]).ravel()).reshape(len(steps), len(typical), -1)
    there = np.exp(-(later - _time_in_bins(typical)) @ hazard) @ weights / weights.sum()
    return max(SHORTEST_S, float(np.trapezoid(there, steps)))


def _hazard(survival: Survival, ages: Floats) -> Floats:
    """Departures per second by bin; the time of the nodes that are there counts as observed."""
    seen = np.array(survival.seen_s) + _time_in_bins(ages).sum(axis=0)
    return np.asarray((np.array(survival.left) + 1.0) / (seen + PRIOR_S))


def _bins(ages: Floats) -> npt.NDArray[np.intp]:
    """The bin of each age."""
    return np.asarray(np.searchsorted(EDGES[1:], ages, side="right"))


def _time_in_bins(ages: Floats) -> Floats:
    """The time that nodes of these ages have spent in each bin, shape (len(ages), bins)."""
    edges = np.array(EDGES)
    lengths = np.diff(edges, append=np.inf)
    return np.asarray(np.clip(np.asarray(ages)[:, None] - edges, 0.0, lengths))
