"""The worth of a trainer on n nodes: section 3.4 of the paper, pure arithmetic.

The value of giving N nodes to a trainer that holds C is (eq. 16, per trainer)

    v(N) = w * ( T_fwd * O(N)  -  stall * O(C)  -  init * max(0, O(N) - O(C)) )

with stall = stall_s of the direction of change (R_up or R_dw of eq. 13; 0 for N = C) and
init = init_s of growing. The published model has init = 0. The last term is what the newcomers do
not yet deliver while they initialise and the members train on.

Where nodes differ (`Problem.groups`), two more things count. Time is cut where a group is expected to
leave: with N_k the nodes that are still there in the k-th slice, of d_k seconds, T_fwd O(N) becomes
sum_k d_k O(N_k), where O is that of the largest size for which these nodes suffice, 0 below n_min. And every
group of which the trainer uses nodes costs w * departures * stall_down * O(max(C, n_min)), once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bftrainer.model.problem import Candidate, Problem
from bftrainer.model.sizes import AllowedSizes
from bftrainer.performance import curve
from bftrainer.performance.curve import Floats


def tables(candidates: Sequence[Candidate], pool_size: int, t_fwd_s: float, node_class: str = "") -> Floats:
    """v_j(n) for n = 0..m, shape (len(candidates), m + 1), m = min(largest n_max, pool_size).

    -inf where the size is not allowed. `t_fwd_s` is the length of the slice that is counted.
    """
    if not candidates:
        return np.zeros((0, 1))
    n_max = np.array([c.n_max for c in candidates])
    n_min = np.array([c.n_min for c in candidates])[:, None]
    held = np.array([c.current for c in candidates])
    m = min(int(n_max.max()), pool_size)
    width = max(m, int(held.max()))
    rates = np.stack([curve.table(c.curve_on(node_class), width) for c in candidates])
    # too few nodes to train on, or a size that is not allowed: nothing is interrupted
    now = np.where([c.trains for c in candidates], rates[np.arange(len(held)), held], 0.0)[:, None]
    up_stall, up_init, down_stall, weight = (
        np.array(column)[:, None]
        for column in zip(
            *((c.costs.up.stall_s, c.costs.up.init_s, c.costs.down.stall_s, c.weight) for c in candidates),
            strict=True,
        )
    )
    rates, n, current = rates[:, : m + 1], np.arange(m + 1), held[:, None]
    value = t_fwd_s * rates
    value -= np.where(n < current, down_stall * now, 0.0)
    value -= np.where(n > current, up_stall * now + up_init * np.maximum(0.0, rates - now), 0.0)
    value *= weight
    value[(n > n_max[:, None]) | ((n > 0) & (n < n_min))] = -np.inf
    for row, c in zip(value, candidates, strict=True):
        if not c.sizes.every:
            row[_fitting(c.sizes, m) != n] = -np.inf
    value.setflags(write=False)
    return value


@lru_cache(maxsize=4096)
def _fitting(sizes: AllowedSizes, m: int) -> npt.NDArray[np.int64]:
    """For 0..m nodes the largest of the sizes for which they suffice, shape (m + 1,)."""
    if sizes.listed:
        steps = np.array((0, *sizes.listed))
        return steps[np.searchsorted(steps, np.arange(m + 1), side="right") - 1]
    return np.arange(m + 1) // sizes.multiple_of * sizes.multiple_of


def values(candidate: Candidate, problem: Problem) -> Floats:
    """v(0..m) of one trainer, shape (m + 1,), m = min(n_max, pool_size), where all nodes are alike."""
    row: Floats = tables((candidate,), problem.pool_size, problem.t_fwd_s)[0]
    return row


def total(problem: Problem, counts: Mapping[int, int]) -> float:
    """The objective of counts where all nodes are alike: the sum of the trainers' values (eq. 16)."""
    rows = tables(problem.candidates, problem.pool_size, problem.t_fwd_s)
    return float(sum(row[counts.get(c.trainer, 0)] for c, row in zip(problem.candidates, rows, strict=True)))


def total_of(problem: Problem, spread: Mapping[int, tuple[int, ...]]) -> float:
    """The objective of a plan that says how many nodes of each group every trainer gets."""
    return sum(worth(c, problem, spread[c.trainer]) for c in problem.candidates)


def classes(candidate: Candidate, problem: Problem) -> tuple[str, ...]:
    """The node classes that a trainer may use now: that of its nodes, or any class if it has none."""
    held: dict[str, int] = {}
    for group, n in zip(problem.parts, problem.held(candidate), strict=True):
        held[group.node_class] = held.get(group.node_class, 0) + n
    most = max(held, key=lambda name: held[name])
    return tuple(name for name in ([most] if held[most] else held) if candidate.curve_on(name))


def slices(problem: Problem) -> list[tuple[float, float]]:
    """(start, duration) of the slices of T_fwd between which groups are expected to leave.

    All nodes count in the first slice. It has no length if a group should have left already.
    """
    cuts = {max(0.0, g.remaining_s) for g in problem.parts if g.remaining_s < problem.t_fwd_s}
    return [(a, b - a) for a, b in pairwise([0.0, *sorted(cuts | {problem.t_fwd_s})])]


def charge(candidate: Candidate, departures: float, node_class: str = "") -> float:
    """Cost of using a group that is expected to leave `departures` times within T_fwd."""
    size = max(candidate.sizes.floor(candidate.current), candidate.n_min)
    speed = curve.rate(candidate.curve_on(node_class), size)
    return candidate.weight * departures * candidate.costs.down.stall_s * speed


def slower(candidate: Candidate, n: int, t_fwd_s: float) -> float:
    """Loss of worth of `n` GPUs of several nodes against `n` of one, see `Candidate.across`."""
    alone, spread = curve.rate(candidate.curve, n), curve.rate(candidate.across, n)
    less = t_fwd_s * (alone - spread)
    if n > candidate.current:
        now = curve.rate(candidate.curve, candidate.current) if candidate.trains else 0.0
        less -= candidate.costs.up.init_s * (max(0.0, alone - now) - max(0.0, spread - now))
    return candidate.weight * less


def later(candidate: Candidate, m: int, duration_s: float, node_class: str = "") -> Floats:
    """Worth of 0..m nodes in a slice that is not the first, shape (m + 1,): 0 below n_min.

    A trainer that is left with a size that is not allowed goes down to the next one that is.
    """
    size = _fitting(candidate.sizes, m)
    rates = curve.table(candidate.curve_on(node_class), m)[size]
    return np.where(size >= candidate.n_min, candidate.weight * duration_s * rates, 0.0)


def worth(candidate: Candidate, problem: Problem, spread: tuple[int, ...]) -> float:
    """The value of having spread[g] nodes of each of the problem's groups; -inf if that is not allowed."""
    used = [(g, n) for g, n in zip(problem.parts, spread, strict=True) if n]
    usable, n = classes(candidate, problem), sum(spread)
    asked = {g.node_class for g, _ in used} or {usable[0] if usable else ""}
    if len(asked) > 1 or (used and not asked <= set(usable)) or n > candidate.n_max:
        return float("-inf")
    (node_class,) = asked
    first, *rest = slices(problem)
    value = float(tables((candidate,), problem.pool_size, first[1], node_class)[0][n])
    for start, duration in rest:
        there = sum(k for g, k in used if g.remaining_s > start)
        value += float(later(candidate, max(there, 1), duration, node_class)[there])
    return value - sum(charge(candidate, g.departures, node_class) for g, _ in used)
