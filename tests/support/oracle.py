"""What the allocators are checked against: enumeration, and the published node-level model.

`brute_force` tries every vector of counts. `node_level` is the model as published (eqs. 1-16), with a
binary per trainer and node, the stray `i` of eq. 4 mended to `1`, and the adjacency of the SOS2 weights
stated with binaries, because HiGHS has no special ordered sets. Problems with `init_s` = 0 only: the
published model has no such cost.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import pyomo.environ as pyo
from pyomo.contrib.appsi.base import TerminationCondition
from pyomo.contrib.appsi.solvers.highs import Highs

from bftrainer.allocate import value as valuing
from bftrainer.model.problem import Candidate, Cap, NodeGroup, Problem
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Cost, Points, RescaleCosts

TOLERANCE = 1e-7
"""Relative difference (absolute below 1) up to which two objectives count as equal."""


def same(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * max(1.0, abs(a), abs(b))


def infeasibilities(problem: Problem, counts: Mapping[int, int]) -> list[str]:
    """Everything that is wrong with `counts` as an answer to `problem`."""
    wrong = []
    if set(counts) != {c.trainer for c in problem.candidates}:
        wrong.append(f"trainers {sorted(counts)}")
    wrong += [
        f"trainer {c.trainer}: {counts.get(c.trainer)} not in 0, {c.n_min}..{c.n_max}, {c.sizes}"
        for c in problem.candidates
        if counts.get(c.trainer, 0) != 0 and counts[c.trainer] not in sizes_of(c)
    ]
    if sum(counts.values()) > problem.pool_size:
        wrong.append(f"{sum(counts.values())} of {problem.pool_size} nodes")
    wrong += [
        f"{sorted(cap.trainers)} hold more than {cap.n_max}"
        for cap in problem.caps
        if sum(counts.get(j, 0) for j in cap.trainers) > cap.n_max
    ]
    return wrong


def sizes_of(c: Candidate) -> list[int]:
    """The node counts that a trainer may get besides none, spelt out."""
    within = range(c.n_min, c.n_max + 1)
    return [n for n in within if n % c.sizes.multiple_of == 0 and (not c.sizes.listed or n in c.sizes.listed)]


def left_with(c: Candidate, nodes: int) -> int:
    """The size to which a trainer goes down that has so many nodes left."""
    return max((n for n in sizes_of(c) if n <= nodes), default=0)


def trains(c: Candidate) -> bool:
    """Whether it can train on what it holds."""
    return c.current in sizes_of(c)


def brute_force(problem: Problem) -> float:
    """The best objective over all feasible counts."""
    return max(valuing.total(problem, counts) for counts in _all_counts(problem))


def _all_counts(problem: Problem) -> Iterator[dict[int, int]]:
    ids = [c.trainer for c in problem.candidates]
    sizes = [[0, *(n for n in sizes_of(c) if n <= problem.pool_size)] for c in problem.candidates]
    for chosen in product(*sizes):
        counts = dict(zip(ids, chosen, strict=True))
        if not infeasibilities(problem, counts):
            yield counts


# --- groups of nodes -----------------------------------------------------------------------------

Spread = dict[int, tuple[int, ...]]


def best_spread(problem: Problem) -> tuple[float, Spread]:
    """The best plan over all ways to deal the groups' nodes out: (objective, nodes of each group)."""
    best, found = float("-inf"), {}
    ids = [c.trainer for c in problem.candidates]
    each = [_spreads(problem, c) for c in problem.candidates]
    values = [
        {own: spelt_out(problem, c, own) for own in ways}
        for c, ways in zip(problem.candidates, each, strict=True)
    ]
    for chosen in product(*each):
        into = dict(zip(ids, chosen, strict=True))
        value = sum(known[own] for known, own in zip(values, chosen, strict=True))
        if value > best and not misspread(problem, into):
            best, found = value, into
    return best, found


def _spreads(problem: Problem, c: Candidate) -> list[tuple[int, ...]]:
    every = product(*(range(g.size + 1) for g in problem.parts))
    return [own for own in every if allowed_spread(problem, c, own)]


def allowed_spread(problem: Problem, c: Candidate, own: tuple[int, ...]) -> bool:
    """Whether a trainer may have these nodes of each group."""
    held = problem.held(c)
    classes = {g.node_class for g, n in zip(problem.parts, own, strict=True) if n}
    grows = all(n >= h for n, h in zip(own, held, strict=True))
    shrinks = all(n <= h for n, h in zip(own, held, strict=True))
    return (sum(own) == 0 or sum(own) in sizes_of(c)) and len(classes) <= 1 and (grows or shrinks)


def misspread(problem: Problem, into: Mapping[int, tuple[int, ...]]) -> list[str]:
    """Everything that is wrong with nodes per group as an answer to `problem`."""
    wrong = infeasibilities(problem, {trainer: sum(own) for trainer, own in into.items()})
    for g, group in enumerate(problem.parts):
        if sum(own[g] for own in into.values()) > group.size:
            wrong.append(f"group {g} has {group.size} nodes only")
    for c in problem.candidates:
        if into.get(c.trainer, ()) not in _spreads(problem, c):
            wrong.append(f"trainer {c.trainer} migrates or mixes classes: {into.get(c.trainer)}")
    return wrong


def spelt_out(problem: Problem, c: Candidate, own: tuple[int, ...]) -> float:
    """The value of nodes per group, integrated over T_fwd from one departure to the next."""
    used = [(g, n) for g, n in zip(problem.parts, own, strict=True) if n]
    held = [g for g, n in zip(problem.parts, problem.held(c), strict=True) if n]
    name = used[0][0].node_class if used else held[0].node_class if held else problem.parts[0].node_class
    points = dict(c.curves).get(name, c.curve)
    now = interpolate(points, c.current) if trains(c) else 0.0
    n, value, moment = sum(own), 0.0, 0.0
    while moment < problem.t_fwd_s:
        until = min([problem.t_fwd_s, *(g.remaining_s for g in problem.parts if g.remaining_s > moment)])
        there = sum(k for g, k in used if g.remaining_s > moment)
        value += (until - moment) * interpolate(points, left_with(c, there))
        moment = until
    if n > c.current:
        value -= c.costs.up.stall_s * now + c.costs.up.init_s * max(0.0, interpolate(points, n) - now)
    if n < c.current:
        value -= c.costs.down.stall_s * now
    speed = interpolate(points, max(left_with(c, c.current), c.n_min))
    value -= sum(g.departures * c.costs.down.stall_s * speed for g, _ in used)
    return c.weight * value


def random_groups(
    rng: random.Random, *, trainers: int = 3, classes: int = 2, caps: bool = False, sizes: bool = False
) -> Problem:
    """A small problem whose nodes differ in class, departure and expected remaining time."""
    names = [f"class{i}" for i in range(rng.randint(1, classes))]
    t_fwd_s = rng.choice([10.0, 120.0, 120.0, 3600.0])
    groups = tuple(
        NodeGroup(
            size=rng.randint(1, 3),
            node_class=rng.choice(names),
            remaining_s=rng.choice([float("inf"), float("inf"), t_fwd_s * rng.uniform(0.05, 1.2)]),
            departures=rng.choice([0.0, rng.random()]),
        )
        for _ in range(rng.randint(1, 4))
    )
    free = [g.size for g in groups]
    candidates = []
    for j in range(1, rng.randint(1, trainers) + 1):
        held = [0] * len(groups)
        own = rng.choice(names)
        for g, group in enumerate(groups):
            if group.node_class == own and rng.random() < 0.5:
                held[g] = rng.randint(0, free[g])
                free[g] -= held[g]
        c = _candidate(rng, j, sum(held), 8, init=True)
        curves = tuple((name, random_curve(rng, c.n_max)) for name in names if rng.random() < 0.4)
        c = with_sizes(rng, c) if sizes and rng.random() < 0.5 else c
        candidates.append(replace(c, held=tuple(held), curves=curves))
    found = []
    if caps:
        for _ in range(rng.randint(1, 2)):
            who = frozenset(rng.sample(range(1, len(candidates) + 1), rng.randint(1, len(candidates))))
            found.append(Cap(trainers=who, n_max=rng.randint(0, 8)))
    return Problem(
        pool_size=sum(g.size for g in groups),
        t_fwd_s=t_fwd_s,
        candidates=tuple(candidates),
        caps=tuple(found),
        groups=groups,
    )


# --- the published model -------------------------------------------------------------------------

Map = dict[int, frozenset[int]]
"""Trainer -> the nodes that it has; nodes are numbers here."""


@dataclass(frozen=True, slots=True)
class NodeLevelAnswer:
    objective: float
    allocation: Map


def contiguous_map(problem: Problem) -> Map:
    """Some map with the problem's current sizes: c_jn of the published model."""
    held, start = {}, 0
    for c in problem.candidates:
        held[c.trainer] = frozenset(range(start, start + c.current))
        start += c.current
    return held


def node_level(problem: Problem, held: Map) -> NodeLevelAnswer:
    """Solve the published model from the map `held`; f_j(C_j) is 0 for a trainer below its minimum."""
    nodes = range(problem.pool_size)
    by_id = {c.trainer: c for c in problem.candidates}
    ids = list(by_id)
    # "sufficiently large": a trainer that gives up all of its nodes needs 2 |N| in eq. 10
    big = 2 * problem.pool_size + max(c.n_max for c in problem.candidates) + 2
    points = {j: _break_points(c, big) for j, c in by_id.items()}
    at = {j: range(len(points[j])) for j in ids}
    c = {(j, n): int(n in held[j]) for j in ids for n in nodes}
    size_c = {j: sum(c[j, n] for n in nodes) for j in ids}  # eq. 1

    m = pyo.ConcreteModel()
    m.x = pyo.Var(ids, nodes, domain=pyo.Binary)
    m.u = pyo.Var(ids, nodes, domain=pyo.Binary)
    m.z = pyo.Var(ids, domain=pyo.Binary)
    m.yl = pyo.Var(ids, domain=pyo.Binary)
    m.yu = pyo.Var(ids, domain=pyo.Binary)
    m.zu = pyo.Var(ids, domain=pyo.Binary)
    m.zd = pyo.Var(ids, domain=pyo.Binary)
    m.w = pyo.Var([(j, i) for j in ids for i in at[j]], bounds=(0.0, 1.0))
    m.b = pyo.Var([(j, i) for j in ids for i in at[j][:-1]], domain=pyo.Binary)  # segment i..i+1
    m.q = pyo.Var([(j, n) for j, t in by_id.items() for n in [0, *sizes_of(t)]], domain=pyo.Binary)
    m.s = pyo.ConstraintList()
    size = {j: sum(m.x[j, n] for n in nodes) for j in ids}  # eq. 2
    for j, t in by_id.items():
        m.s.add(size[j] >= t.n_min - big * m.yl[j])  # eq. 4
        m.s.add(size[j] <= big * (1 - m.yl[j]))
        m.s.add(t.n_max >= size[j] - big * m.yu[j])
        m.s.add(size[j] <= big * (1 - m.yu[j]))
        m.s.add(sum(m.q[j, n] for n in [0, *sizes_of(t)]) == 1)  # not in the paper: sizes with gaps
        m.s.add(sum(n * m.q[j, n] for n in [0, *sizes_of(t)]) == size[j])
        for n in nodes:  # eq. 9
            m.s.add(m.u[j, n] <= m.x[j, n] + c[j, n])
            m.s.add(m.u[j, n] >= m.x[j, n] - c[j, n])
            m.s.add(m.u[j, n] >= c[j, n] - m.x[j, n])
            m.s.add(m.u[j, n] <= 2 - m.x[j, n] - c[j, n])
        changed = sum(m.u[j, n] for n in nodes)
        m.s.add(size[j] - size_c[j] >= changed - big * m.z[j])  # eq. 10
        m.s.add(size[j] - size_c[j] <= -changed + big * (1 - m.z[j]))
        m.s.add(sum(m.w[j, i] for i in at[j]) == 1)  # eq. 11
        m.s.add(sum(m.w[j, i] * points[j][i][0] for i in at[j]) == size[j])
        m.s.add(sum(m.b[j, i] for i in at[j][:-1]) == 1)  # SOS2: two neighbours at most
        for i in at[j]:
            m.s.add(m.w[j, i] <= sum(m.b[j, k] for k in (i - 1, i) if k in at[j][:-1]))
        m.s.add(size[j] <= size_c[j] + (big - size_c[j]) * m.zu[j])  # eq. 15
        m.s.add(size[j] >= (size_c[j] + 1) * m.zu[j])
        m.s.add(size[j] <= (size_c[j] - 1) + (big - (size_c[j] - 1)) * (1 - m.zd[j]))
        m.s.add(size[j] >= size_c[j] * (1 - m.zd[j]))
    for n in nodes:
        m.s.add(sum(m.x[j, n] for j in ids) <= 1)  # eq. 5
    m.value = pyo.Objective(  # eq. 16 with eqs. 12 and 14
        expr=sum(
            t.weight
            * (
                problem.t_fwd_s * sum(m.w[j, i] * points[j][i][1] for i in at[j])
                - _now(t) * (t.costs.up.stall_s * m.zu[j] + t.costs.down.stall_s * m.zd[j])
            )
            for j, t in by_id.items()
        ),
        sense=pyo.maximize,
    )
    solver = Highs()
    solver.config.mip_gap = 1e-9
    solver.highs_options = {"mip_abs_gap": 1e-6, "threads": 1, "output_flag": False}
    result = solver.solve(m)
    assert result.termination_condition == TerminationCondition.optimal
    return NodeLevelAnswer(
        objective=float(pyo.value(m.value)),
        allocation={j: frozenset(n for n in nodes if pyo.value(m.x[j, n]) > 0.5) for j in ids},
    )


def _break_points(candidate: Candidate, big: int) -> list[tuple[int, float]]:
    last, rate = candidate.curve[-1]
    return [(0, 0.0), *candidate.curve, (max(last, big) + 1, rate)]


def _now(candidate: Candidate) -> float:
    return interpolate(candidate.curve, candidate.current) if trains(candidate) else 0.0


def interpolate(points: Points, n: float) -> float:
    """The curve's value, spelt out: linear between points from (0, 0) on, flat beyond the last."""
    below = (0, 0.0)
    for point in points:
        if n <= point[0]:
            share = (n - below[0]) / (point[0] - below[0])
            return below[1] + share * (point[1] - below[1])
        below = point
    return below[1]


# --- random problems -----------------------------------------------------------------------------


def random_problem(
    rng: random.Random,
    *,
    trainers: int = 6,
    pool: int = 14,
    init: bool = True,
    caps: bool = False,
    sizes: bool = True,
) -> Problem:
    """A problem of 1..`trainers` trainers on 0..`pool` nodes, with every awkwardness now and then.

    Without `sizes`, every trainer allows every size within its limits.
    """
    n = rng.choice([1, rng.randint(1, trainers), rng.randint(1, trainers)])
    size = rng.choice([0, *(rng.randint(1, pool) for _ in range(7)), min(pool, max(0, n - 1))])
    current = _current(rng, n, size)
    candidates = tuple(_candidate(rng, j, current[j - 1], pool, init=init) for j in range(1, n + 1))
    found = []
    if caps:
        for _ in range(rng.randint(1, 3)):
            who = frozenset(rng.sample(range(1, n + 1), rng.randint(1, n)))
            found.append(Cap(trainers=who, n_max=rng.randint(0, size + 1)))
    t_fwd_s = rng.choice([1.0, 10.0, 120.0, 120.0, 3600.0])
    if sizes:
        candidates = tuple(with_sizes(rng, c) if rng.random() < 0.4 else c for c in candidates)
    return Problem(pool_size=size, t_fwd_s=t_fwd_s, candidates=candidates, caps=tuple(found))


def with_sizes(rng: random.Random, c: Candidate) -> Candidate:
    """The trainer, allowing multiples or a list of sizes only; of what it holds, too, now and then."""
    if rng.random() < 0.5:
        return replace(c, sizes=AllowedSizes(multiple_of=rng.randint(2, 4)))
    listed = sorted(rng.sample(range(1, c.n_max + 2), rng.randint(1, min(4, c.n_max + 1))))
    return replace(c, sizes=AllowedSizes(listed=rng.choice([tuple(listed), (1, 2, 4, 8)])))


def _current(rng: random.Random, n: int, size: int) -> list[int]:
    """How many nodes each of `n` trainers holds: nothing, some, or all of the pool."""
    taken = rng.choice([0, rng.randint(0, size), size])
    held = [0] * n
    for _ in range(taken):
        held[rng.randrange(n)] += 1
    return held


def _candidate(rng: random.Random, id_: int, current: int, pool: int, *, init: bool) -> Candidate:
    n_min = rng.choice([1, 1, rng.randint(1, 5)])
    n_max = max(current, rng.randint(n_min, max(n_min, pool)))
    up = Cost(
        stall_s=rng.choice([0.0, 0.5, 18.0, 200.0]), init_s=rng.choice([0.0, 5.0, 90.0]) if init else 0.0
    )
    down = Cost(stall_s=rng.choice([0.0, 0.5, 12.0, 200.0]))
    return Candidate(
        trainer=id_,
        n_min=n_min,
        n_max=n_max,
        current=current,
        curve=random_curve(rng, n_max),
        weight=rng.choice([1.0, 1.0, rng.uniform(0.1, 10.0)]),
        costs=RescaleCosts(up=up, down=down),
    )


def random_curve(rng: random.Random, n_max: int) -> Points:
    """Concave, convex, falling in the end, or anything; on some of the node counts up to beyond n_max."""
    at = sorted(rng.sample(range(1, n_max + 4), rng.randint(1, min(6, n_max + 3))))
    scale = rng.choice([0.01, 1.0, 100.0, 7000.0])
    shape = rng.choice(["concave", "convex", "falling", "anything"])
    if shape == "concave":
        return tuple((n, scale * n**0.7) for n in at)
    if shape == "convex":
        return tuple((n, scale * n**1.5) for n in at)
    if shape == "falling":
        peak = rng.randint(1, n_max)
        return tuple((n, scale * max(0.1, peak - abs(n - peak) + rng.random())) for n in at)
    return tuple((n, scale * rng.uniform(0.1, 10.0)) for n in at)
