"""The exact method: a multiple-choice knapsack over node counts, without a solver.

With one class of nodes and no constraint across trainers besides sum N_j <= |pool|, giving trainer
j exactly one of its sizes is a multiple-choice knapsack. `profile` is the plain dynamic programme,

    best_j[k] = max over n of  best_{j-1}[k - n] + v_j(n)        k = 0..|pool|

O(|pool| * sum_j (n_max_j + 1)) operations for any v_j. `solve` finds the same optimum for one pool size
and examines little of that. With a price l per node, every trainer chooses for itself, and

    g(l) = l |pool| + sum_j max_n (v_j(n) - l n)   >=   the optimum, for any l >= 0

At the price l* that makes g smallest, rounding the choices to the pool's size gives a plan; its distance
to g(l*) is about what one trainer loses. A choice whose own loss against the best at l* exceeds that distance
cannot be part of a better plan (dominance by reduced cost). The dynamic programme runs over what remains,
often nothing. Nothing is carried from one event to the next: finding l* again takes a few vector operations.

Caps on disjoint sets of trainers stay exact: a set's `profile` up to its cap is the value function of
one trainer that stands for all of them.

Of equal optima, the method always finds the same one; of interchangeable trainers, earlier ones get more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bftrainer.allocate import value
from bftrainer.model.problem import Cap, Plan, PlanStatus, Problem
from bftrainer.performance.curve import Floats

Ints = npt.NDArray[np.int64]
TOLERANCE = 1e-9
"""Relative difference up to which two values count as equal."""
ROUNDS = 16
"""Times that rounding may improve one trainer's choice."""


def disjoint(caps: Sequence[Cap]) -> bool:
    """True if no trainer is under two caps."""
    capped = [trainer for cap in caps for trainer in cap.trainers]
    return len(capped) == len(set(capped))


def exact_for(problem: Problem) -> bool:
    """True if the method covers all of the problem's constraints."""
    return not problem.groups and disjoint(problem.caps)


def allocate(problem: Problem) -> Plan:
    """The optimal counts.

    Raises:
        ValueError: the problem has groups of nodes, or caps on overlapping sets of trainers.
    """
    if not exact_for(problem):
        raise ValueError("overlapping caps or groups of nodes: use the allocator milp or auto")
    rows = value.tables(problem.candidates, problem.pool_size, problem.t_fwd_s)
    chosen = choose(rows, problem.pool_size, [c.trainer for c in problem.candidates], problem.caps)
    objective = float(rows[np.arange(len(rows)), chosen].sum())
    counts = {c.trainer: int(n) for c, n in zip(problem.candidates, chosen, strict=True)}
    return Plan(
        allocator="knapsack", status=PlanStatus.OPTIMAL, counts=counts, objective=objective, bound=objective
    )


def choose(rows: Floats, budget: int, trainers: Sequence[int], caps: Sequence[Cap] = ()) -> Ints:
    """The best counts within the budget and disjoint caps, shape (J,), for values (J, m + 1)."""
    index = {trainer: j for j, trainer in enumerate(trainers)}
    sets = [sorted(index[t] for t in cap.trainers if t in index) for cap in caps]
    freely = solve(rows, budget)
    if all(freely[own].sum() <= cap.n_max for cap, own in zip(caps, sets, strict=True)):
        return freely  # no cap binds; what follows would look at every size of every trainer
    free = sorted(set(range(len(rows))) - {j for members in sets for j in members})
    inner = [profile(rows[own], min(cap.n_max, budget)) for cap, own in zip(caps, sets, strict=True)]
    outer = np.full((len(free) + len(inner), max(rows.shape[1], *(len(b) for b, _ in inner))), -np.inf)
    outer[: len(free), : rows.shape[1]] = rows[free]
    for i, (best, _) in enumerate(inner, start=len(free)):
        outer[i, : len(best)] = best
    given = solve(outer, budget)
    chosen = np.zeros(len(rows), dtype=np.int64)
    chosen[free] = given[: len(free)]
    for own, (_, choices), k in zip(sets, inner, given[len(free) :], strict=True):
        chosen[own] = trace(choices, int(k))
    return chosen


# --- the plain dynamic programme -----------------------------------------------------------------


def profile(rows: Sequence[Floats] | Floats, budget: int) -> tuple[Floats, list[Ints]]:
    """best[k], the most that all rows together are worth on at most k nodes, for k = 0..budget.

    The second result is the choices that `trace` turns into counts.
    """
    best = np.zeros(budget + 1)
    choices = []
    for v in rows:
        m = min(len(v) - 1, budget)
        sums = _windows(best, m + 1, -np.inf)[: budget + 1] + v[m::-1]  # best[k - n] + v(n)
        pick = sums.argmax(axis=1)
        best = sums[np.arange(budget + 1), pick]
        choices.append(m - pick)
    return best, choices


def _windows(values: Floats, width: int, beyond: float) -> Floats:
    """Row k holds values[k - width + 1] .. values[k], `beyond` outside; shape (len + width - 1, width)."""
    edge = np.full(width - 1, beyond)
    return np.lib.stride_tricks.sliding_window_view(np.concatenate((edge, values, edge)), width)


def trace(choices: Sequence[Ints], k: int) -> Ints:
    """The counts behind best[k] of `profile`."""
    counts = []
    for choice in reversed(choices):
        counts.append(int(choice[k]))
        k -= counts[-1]
    return np.array(counts[::-1], dtype=np.int64)


# --- the same for one budget, looking only where it matters --------------------------------------


def solve(rows: Floats, budget: int) -> Ints:
    """Counts of greatest total value with a sum of at most `budget`, shape (J,), for values (J, m + 1)."""
    each = np.arange(len(rows))
    rows = rows[:, : budget + 1]
    sizes = np.arange(rows.shape[1])
    price, chosen = lowest_price(rows, budget)
    if price == 0.0:
        return chosen
    reduced = rows - price * sizes
    best = reduced.max(axis=1)
    bound = price * budget + best.sum()
    slack = TOLERANCE * max(1.0, abs(bound))
    loss = best[:, None] - reduced
    chosen = _fill(loss, chosen, budget, slack / max(1, len(rows)))
    chosen = _improve(rows, chosen, budget, slack)
    gap = bound - rows[each, chosen].sum()
    if gap <= slack:
        return chosen
    return _search(loss, chosen, budget, price, gap, slack)


def lowest_price(rows: Floats, budget: int) -> tuple[float, Ints]:
    """l* (value per node), and the choices at it that need the fewest nodes (they fit).

    Two prices, one too low for the budget and one high enough, are tangents of the convex g; where
    they cross is the next price, until g has its kink there: a finite search, a dozen steps in practice.
    """
    each, sizes = np.arange(len(rows)), np.arange(rows.shape[1])

    def at(price: float) -> tuple[Ints, int, float]:
        chosen = (rows - price * sizes).argmax(axis=1)  # the fewest nodes among equals
        return chosen, int(chosen.sum()), float(rows[each, chosen].sum())

    chosen, low_n, low_value = at(0.0)
    if low_n <= budget:
        return 0.0, chosen
    steps = (rows[:, 1:] - rows[:, :1]) / sizes[1:]
    chosen, high_n, high_value = at(max(0.0, float(steps.max())) * (1 + 1e-12))  # no trainer takes a node
    while True:
        price = (low_value - high_value) / (low_n - high_n)
        between, n, worth = at(price)
        higher = (worth - price * n) - (high_value - price * high_n)
        if n in (low_n, high_n) or higher <= 1e-3 * TOLERANCE * max(1.0, abs(worth)):
            return price, chosen
        if n <= budget:
            chosen, high_n, high_value = between, n, worth
        else:
            low_n, low_value = n, worth


def _fill(loss: Floats, chosen: Ints, budget: int, equal: float) -> Ints:
    """Give what is left to choices that are as good at l* but larger, in the order of the trainers."""
    left = budget - int(chosen.sum())
    ties = loss <= equal
    chosen = chosen.copy()
    for j in np.flatnonzero(ties.sum(axis=1) > 1):
        options = np.flatnonzero(ties[j])
        fits = options[options <= chosen[j] + left]
        if len(fits) and fits[-1] > chosen[j]:
            left -= int(fits[-1] - chosen[j])
            chosen[j] = fits[-1]
        if left == 0:
            break
    return chosen


def _improve(rows: Floats, chosen: Ints, budget: int, slack: float) -> Ints:
    """Change one trainer at a time for the better, while that fits."""
    each = np.arange(len(rows))
    for _ in range(ROUNDS):
        left = budget - int(chosen.sum())
        gain = rows - rows[each, chosen][:, None]
        gain[np.arange(rows.shape[1]) > (chosen + left)[:, None]] = -np.inf
        j, n = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[j, n] <= slack:
            break
        chosen[j] = n
    return chosen


def _search(loss: Floats, plan: Ints, budget: int, price: float, gap: float, slack: float) -> Ints:
    """The dynamic programme over the choices that may be part of a plan better than `plan`.

    It minimises sum_j loss_j(n_j) + price * (unused nodes), the distance to the bound, which is `gap` for
    `plan`. States are how many nodes the trainers so far take more, or less, than where they lose nothing;
    those that have lost `gap` already are cut off at both ends, which keeps them few.
    """
    kept = loss < gap
    base = loss.argmin(axis=1)
    left = budget - int(base.sum())
    core = np.flatnonzero(kept.sum(axis=1) > 1)
    cost, low = np.zeros(1), 0
    trail: list[tuple[int, Ints]] = []
    for j in core:
        options = np.flatnonzero(kept[j])
        first, last = int(options[0]), int(options[-1])
        own = np.where(kept[j, first : last + 1], loss[j, first : last + 1], np.inf)
        sums = _windows(cost, len(own), np.inf)[:, ::-1] + own  # row k: where own[i] leads to state k
        pick = sums.argmin(axis=1)
        after = sums[np.arange(len(sums)), pick]
        alive = np.flatnonzero(after < gap)
        begin, end = int(alive[0]), int(alive[-1]) + 1
        cost, low = after[begin:end], low + first - int(base[j]) + begin
        trail.append((low, pick[begin:end] + first - int(base[j])))
    unused = left - low - np.arange(len(cost))
    distance = np.where(unused >= 0, cost + price * unused, np.inf)
    best = int(distance.argmin())
    if not distance[best] < gap - slack:
        return plan
    found: Ints = base.astype(np.int64)
    state = low + best
    for j, (start, pick) in zip(core[::-1], reversed(trail), strict=True):
        found[j] += pick[state - start]
        state -= int(pick[state - start])
    return found
