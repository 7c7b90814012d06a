"""The exact method where nodes differ: a bound on every plan, and a plan that is near it.

With groups of nodes, node classes or overlapping caps the knapsack is a relaxation. It gives every trainer
the best that it could get from the groups if it came first: the nodes that stay longest, from the fewest
groups. That is again a function of its node count alone, so `knapsack` solves it, and its optimum bounds
every plan. `spread` then distributes the counts over the groups. The plan is worth less than the bound by
what trainers take from each other. If that is little, the plan is as good as optimal; otherwise the MILP
starts from it.

Classes are priced apart: for any prices l_c >= 0 per node of class c,

    sum_c l_c |class c| + sum_j max over (c, n) of (v_jc(n) - l_c n)

bounds every plan, too. The prices are those at which every class is just used up by the trainers
that find it the best for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bftrainer.allocate import knapsack, value
from bftrainer.model.problem import Candidate, Cap, Plan, PlanStatus, Problem
from bftrainer.performance.curve import Floats

REPAIRS = 6
"""Times that nodes freed by broken caps are shared out again."""
ROUNDS = 12
"""Times that the classes' prices are adjusted to trainers' choices."""

EXACT = 1e-9
"""A relative gap as good as none in double precision."""

Spread = dict[int, tuple[int, ...]]
"""Trainer -> how many nodes of each group of the problem it gets."""


@dataclass(frozen=True, slots=True)
class Class:
    """One class of nodes in the relaxation: its size, and what every trainer could make of it at best."""

    name: str
    size: int
    rows: Floats  # (J, m + 1); only 0 nodes are allowed to those that cannot use it


def allocate(problem: Problem, gap: float) -> Plan:
    """A feasible plan and a bound; optimal, if they are within `gap` (relative) of each other.

    Counts that suit all nodes may be too many if some nodes leave soon. So counts that suit only the nodes
    that stay beyond each expected departure are tried, too, and the plan of the greatest value is taken.
    """
    found = [_class(problem, name) for name in dict.fromkeys(g.node_class for g in problem.parts)]
    bound, wanted = _choose(found, problem)
    plans = [_deal(problem, found, wanted)]
    for start, _ in value.slices(problem)[1:]:
        lasting = [replace(k, size=_lasting(problem, k.name, start)) for k in found]
        plans.append(_deal(problem, lasting, _choose(lasting, problem)[1]))
    into = max(plans, key=lambda plan: value.total_of(problem, plan))
    return plan_of(problem, into, bound, allocator="knapsack", gap=gap)


def _deal(problem: Problem, classes: list[Class], wanted: dict[int, tuple[str, int]]) -> Spread:
    """A feasible plan from the relaxation's counts: within caps, spread over groups, and reconsidered."""
    classes = [replace(k, rows=k.rows.copy()) for k in classes]
    for _ in range(REPAIRS):
        counts = within_caps(problem, {trainer: n for trainer, (_, n) in wanted.items()})
        less = {t: n for t, n in counts.items() if n < wanted[t][1]}
        if not less:
            break
        for k in classes:  # nodes that are cut here may serve another trainer
            for j, c in enumerate(problem.candidates):
                if c.trainer in less:
                    k.rows[j, less[c.trainer] + 1 :] = -np.inf
        _, wanted = _choose(classes, problem)
    counts = within_caps(problem, {trainer: n for trainer, (_, n) in wanted.items()})
    into = spread(problem, {t: (wanted[t][0], n) for t, n in counts.items()})
    return _reconsidered(problem, into) if problem.groups else into


def _lasting(problem: Problem, name: str, moment: float) -> int:
    """Number of nodes of a class that stay past a moment (s from now)."""
    return sum(g.size for g in problem.parts if g.node_class == name and g.remaining_s > moment)


def plan_of(problem: Problem, into: Spread, bound: float, *, allocator: str, gap: float) -> Plan:
    """A plan from counts per group, with the status that its distance to `bound` allows."""
    objective = value.total_of(problem, into)
    bound = max(bound, objective)
    near = bound - objective <= max(gap, EXACT) * max(1.0, abs(bound))
    return Plan(
        allocator=allocator,
        status=PlanStatus.OPTIMAL if near else PlanStatus.FEASIBLE,
        counts={trainer: sum(n) for trainer, n in into.items()},
        objective=objective,
        bound=bound,
        spread=into if problem.groups else {},
        note=f"asked for a relative gap of {gap:g}",
    )


def within_caps(problem: Problem, counts: Mapping[int, int]) -> dict[int, int]:
    """Counts within all caps: where one is broken, the last trainers in order get fewer."""
    kept = dict(counts)
    for cap in problem.caps:
        over = sum(kept.get(t, 0) for t in cap.trainers) - cap.n_max
        for c in reversed(problem.candidates):
            if over > 0 and c.trainer in cap.trainers and kept[c.trainer]:
                smaller = c.fitting(kept[c.trainer] - over)
                over -= kept[c.trainer] - smaller
                kept[c.trainer] = smaller
    return kept


# --- the relaxation ------------------------------------------------------------------------------


def _class(problem: Problem, name: str) -> Class:
    """One class of nodes, with what every trainer could make of it at best."""
    size = sum(g.size for g in problem.parts if g.node_class == name)
    usable = np.array([name in value.classes(c, problem) for c in problem.candidates], dtype=bool)
    slices = value.slices(problem)
    rows = np.array(value.tables(problem.candidates, size, slices[0][1], name))
    rows[~usable, 1:] = -np.inf
    elsewhere = np.array([bool(value.classes(c, problem)) for c in problem.candidates], dtype=bool)
    rows[~usable & elsewhere, 0] = -np.inf  # it stays at 0 in a class of its own
    if problem.groups:
        for j in np.flatnonzero(usable):
            _relax(rows[j], problem.candidates[j], problem, name, slices[1:])
    return Class(name, size, rows)


def _relax(row: Floats, c: Candidate, problem: Problem, name: str, rest: list[tuple[float, float]]) -> None:
    """Add to row[n] what n nodes are worth in the later slices and cost by their groups, at best."""
    m = len(row) - 1
    n = np.arange(m + 1)
    own = [(g, h) for g, h in zip(problem.parts, problem.held(c), strict=True) if g.node_class == name]
    current = sum(h for _, h in own)
    for start, duration in rest:
        size = sum(g.size for g, _ in own if g.remaining_s > start)
        held = sum(h for g, h in own if g.remaining_s > start)
        there = np.where(n <= current, np.minimum(n, held), held + np.minimum(n - current, size - held))
        worth = value.later(c, max(m, int(there.max())), duration, name)
        row += np.maximum.accumulate(worth)[there]  # having more is at least as good as the best below
    price = {g.departures: value.charge(c, g.departures, name) for g, _ in own}
    row -= np.where(
        n <= current,
        _cheapest(n, [(price[g.departures], h) for g, h in own if h]),
        sum(price[g.departures] for g, h in own if h)
        + _cheapest(n - current, [(0.0 if h else price[g.departures], g.size - h) for g, h in own]),
    )


def _cheapest(n: knapsack.Ints, groups: list[tuple[float, int]]) -> Floats:
    """A lower bound on what n nodes cost by groups of (charge, nodes): groups counted by their share."""
    ranked = sorted((charge / nodes, charge, nodes) for charge, nodes in groups if nodes)
    nodes = np.cumsum([0, *(k for _, _, k in ranked)])
    charges = np.cumsum([0.0, *(charge for _, charge, _ in ranked)])
    bound: Floats = np.interp(n, nodes, charges)
    return bound


def _choose(classes: list[Class], problem: Problem) -> tuple[float, dict[int, tuple[str, int]]]:
    """A bound on every plan, and for each trainer the class and count that the relaxation gives it."""
    trainers = [c.trainer for c in problem.candidates]
    if len(classes) == 1:
        (only,) = classes
        counts = knapsack.choose(only.rows, only.size, trainers, _disjoint(problem.caps))
        bound = float(only.rows[np.arange(len(counts)), counts].sum())
        return bound, {t: (only.name, int(n)) for t, n in zip(trainers, counts, strict=True)}
    bound, where = _divide(classes)
    chosen = {}
    for i, k in enumerate(classes):
        here = np.flatnonzero(where == i)
        for j, n in zip(here, knapsack.solve(k.rows[here], k.size), strict=True):
            chosen[trainers[j]] = (k.name, int(n))
    return bound, chosen


def _disjoint(caps: Sequence[Cap]) -> list[Cap]:
    """Caps of which no two share a trainer: the first, and each that does not overlap those before."""
    kept: list[Cap] = []
    for cap in caps:
        if all(cap.trainers.isdisjoint(other.trainers) for other in kept):
            kept.append(cap)
    return kept


def _divide(classes: list[Class]) -> tuple[float, knapsack.Ints]:
    """The lowest bound found over the classes' prices, and the class of each trainer at those."""
    prices = np.array([_price(k, slice(None)) for k in classes])
    bound, where = np.inf, np.zeros(len(classes[0].rows), dtype=np.int64)
    for step in range(ROUNDS):
        net = np.array(
            [
                (k.rows - p * np.arange(k.rows.shape[1])).max(axis=1)
                for k, p in zip(classes, prices, strict=True)
            ]
        )
        total = float(net.max(axis=0).sum() + sum(p * k.size for k, p in zip(classes, prices, strict=True)))
        chosen = net.argmax(axis=0)
        if total < bound:
            bound, where = total, chosen
        asked = np.array([_price(k, chosen == i) for i, k in enumerate(classes)])
        prices += (asked - prices) / (step + 1.5)
    return bound, where


def _price(k: Class, chosen: knapsack.Ints | slice) -> float:
    """The price per node at which the chosen trainers just use the class up."""
    rows = k.rows[chosen, : k.size + 1]
    rows = rows[np.isfinite(rows[:, 0])]  # those that may be in this class
    return knapsack.lowest_price(rows, k.size)[0] if len(rows) else 0.0


# --- counts to groups ----------------------------------------------------------------------------


def spread(problem: Problem, wanted: Mapping[int, tuple[str, int]]) -> Spread:
    """Nodes of each group for every trainer, from the (class, count) that each should have.

    A trainer that shrinks gives up nodes of the groups that leave first, and among those of the groups of
    which it has least. A trainer that grows takes from the groups that it uses already, then from those
    that stay longest; among those from the one that just suffices, so that large groups stay whole for
    trainers that need many nodes. No trainer migrates.
    """
    parts = problem.parts
    into: Spread = {}
    free = [g.size for g in parts]
    growing: list[tuple[int, int, str]] = []
    for c in problem.candidates:
        name, n = wanted[c.trainer]
        held = problem.held(c)
        kept = [0] * len(parts)
        if n >= c.current:
            kept = list(held)
            growing.append((c.trainer, n - c.current, name))
        else:
            for g in sorted(range(len(parts)), key=lambda g: (-_stays(problem, g), -held[g], g)):
                kept[g] = min(held[g], n - sum(kept))
        into[c.trainer] = tuple(kept)
        free = [f - k for f, k in zip(free, kept, strict=True)]
    for trainer, need, name in sorted(growing, key=lambda entry: (-entry[1], entry[0])):
        taken = list(into[trainer])
        left = need
        while left:
            g = min(
                (g for g in range(len(parts)) if free[g] and parts[g].node_class == name),
                key=lambda g: (
                    not taken[g],
                    -_stays(problem, g),
                    free[g] < left,
                    free[g] if free[g] >= left else -free[g],
                    g,
                ),
            )
            n = min(left, free[g])
            taken[g] += n
            free[g] -= n
            left -= n
        into[trainer] = tuple(taken)
    return into


def _reconsidered(problem: Problem, into: Spread) -> Spread:
    """The plan with second thoughts: a trainer keeps what it holds, or gets nothing, if its share is worth
    less.

    The counts were chosen for the best nodes of the pool; the nodes that a trainer really gets may not be
    worth a rescale.
    """
    free = [g.size - sum(own[i] for own in into.values()) for i, g in enumerate(problem.parts)]
    found = dict(into)
    for c in sorted(problem.candidates, key=lambda c: c.current - sum(into[c.trainer])):  # growth first
        own, held = found[c.trainer], problem.held(c)
        fits = all(h <= n + f for h, n, f in zip(held, own, free, strict=True))
        keeps = fits and sum(held) <= sum(own)
        ways = [own, (0,) * len(own), *([held] if keeps else [])]  # one that is not allowed is worth -inf
        best = max(ways, key=lambda way: value.worth(c, problem, way))
        free = [f + n - k for f, n, k in zip(free, own, best, strict=True)]
        found[c.trainer] = best
    return found


def _stays(problem: Problem, g: int) -> float:
    """For how long a group is expected to stay (s), as far as it counts."""
    return min(problem.parts[g].remaining_s, problem.t_fwd_s)
