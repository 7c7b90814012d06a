"""What a trainer on n nodes is worth: section 3.4 of the paper, pure arithmetic.

The value of giving N nodes to a trainer that holds C is (eq. 16, per trainer)

    v(N) = w * ( T_fwd * O(N)  -  stall * O(C)  -  init * max(0, O(N) - O(C)) )

with stall = stall_s of the direction of change (R_up or R_dw of eq. 13; 0 for N = C) and
init = init_s of growing. The published model has init = 0. The last term is what the newcomers do
not yet deliver while they initialise and the members train on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from bftrainer import curve
from bftrainer.curve import Floats
from bftrainer.model import Candidate, Points, Problem


def throughput(points: Points) -> float:
    """Samples/s count as they are."""
    return 1.0


def efficiency(points: Points) -> float:
    """Samples/s relative to one node's: trainers of different speed count alike (section 5.2)."""
    return 1.0 / curve.rate(points, 1)


OBJECTIVES: Mapping[str, Callable[[Points], float]] = {"throughput": throughput, "efficiency": efficiency}
"""Objective name -> what one sample/s of a trainer with this curve is worth."""


def metric(name: str, points: Points) -> Points:
    """The objective metric O_j as a curve of its own."""
    scale = OBJECTIVES[name](points)
    return points if scale == 1.0 else tuple((n, rate * scale) for n, rate in points)


def values(candidate: Candidate, problem: Problem) -> Floats:
    """v(0..m), shape (m + 1,), m = min(n_max, pool_size); -inf where the size is not allowed."""
    return _values(candidate, min(candidate.n_max, problem.pool_size), problem.t_fwd_s)


@lru_cache(maxsize=8192)
def _values(candidate: Candidate, m: int, t_fwd_s: float) -> Floats:
    c, costs = candidate.current, candidate.costs
    rates = curve.table(candidate.curve, max(m, c))
    now = rates[c] if c >= candidate.n_min else 0.0  # too few nodes to train on: nothing is interrupted
    value = t_fwd_s * rates[: m + 1]
    value[:c] -= costs.down.stall_s * now
    value[c + 1 :] -= costs.up.stall_s * now + costs.up.init_s * np.maximum(0.0, rates[c + 1 : m + 1] - now)
    value *= candidate.weight
    value[1 : min(candidate.n_min, m + 1)] = -np.inf
    value.setflags(write=False)
    return value


def total(problem: Problem, counts: Mapping[int, int]) -> float:
    """The objective of a plan: the sum of its trainers' values (eq. 16)."""
    return float(sum(values(c, problem)[counts.get(c.trainer, 0)] for c in problem.candidates))
