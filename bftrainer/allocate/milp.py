"""The aggregated mixed-integer model in Pyomo, solved by HiGHS.

Nodes of one class are interchangeable and nobody migrates, so only the counts N_j matter: the model
has the same optimum as the published one with a binary per trainer and node (eqs. 1-16), which
stands in the tests as its oracle. `assign` turns counts into nodes.

Per trainer, the value v_j(N) of `objective` is piecewise linear with jumps: at 0 and n_min (sizes
are 0 or n_min..n_max), at the curve's points, and around C_j, where the rescale cost sets in. Its
pieces are intervals [a_s, b_s] of whole numbers with v_j(N) = g_s + h_s N on each. One binary y_s
per piece and one share N_s of the count state everything at once:

    sum_s y_s <= 1                     on or off; no piece: N_j = 0
    a_s y_s <= N_s <= b_s y_s          sizes, eq. 4
    sum_j sum_s N_s <= |pool|          eq. 5
    max sum_j sum_s (g_s y_s + h_s N_s)                           eq. 16

so y takes the place of y^l, y^u, z^u, z^d and of the SOS2 adjacency (eqs. 4, 12, 15; HiGHS has no
special ordered sets). This "multiple choice" statement is as tight as can be: for one trainer its
linear relaxation is the concave hull of v_j, so that with the one row across trainers few branches
are left to search. Staying at 0 while holding nothing is worth 0; holding C_j > 0 and going to 0
costs the scale-down, which is a constant of the choice "no piece".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pyomo.environ as pyo
from pyomo.contrib.appsi.base import TerminationCondition
from pyomo.contrib.appsi.solvers.highs import Highs

from bftrainer import objective
from bftrainer.model import Candidate, Plan, PlanStatus, Problem

GAP = 1e-9
"""Relative gap asked of the solver: as good as exact in double precision."""


@dataclass(frozen=True, slots=True)
class Piece:
    """v(N) = constant + slope * N for lo <= N <= hi."""

    lo: int
    hi: int
    constant: float
    slope: float


def allocate(problem: Problem, *, time_limit_s: float) -> Plan:
    """Solve the model. On a time-out, the better of incumbent and current map (section 3.6)."""
    pieces = {c.trainer: _pieces(c, problem) for c in problem.candidates}
    base = sum(float(objective.values(c, problem)[0]) for c in problem.candidates)
    if not any(pieces.values()):  # no node, or nobody who could run on so few: nothing to solve
        nothing = dict.fromkeys(pieces, 0)
        return Plan(allocator="milp", status=PlanStatus.OPTIMAL, counts=nothing, objective=base, bound=base)
    model = _build(problem, pieces)
    solver = Highs()
    solver.config.time_limit = time_limit_s
    solver.config.mip_gap = GAP
    solver.config.load_solution = False
    solver.highs_options = {"mip_abs_gap": 1e-6, "threads": 1, "output_flag": False}
    result = solver.solve(model)
    if result.best_feasible_objective is None or not math.isfinite(result.best_feasible_objective):
        return _keep(problem, note="time limit without a solution: the current map is kept")
    result.solution_loader.load_vars()
    counts = _counts(model, problem, pieces)
    value = objective.total(problem, counts)
    bound = result.best_objective_bound
    plan = Plan(
        allocator="milp",
        status=PlanStatus.OPTIMAL,
        counts=counts,
        objective=value,
        bound=value if bound is None or not math.isfinite(bound) else max(value, bound + base),
        note=f"HiGHS, relative gap {GAP:g}",
    )
    if result.termination_condition == TerminationCondition.optimal:
        return plan
    kept = _keep(problem, note="time limit: the current map is better than the incumbent")
    if kept.objective >= plan.objective:
        return replace(kept, bound=plan.bound)
    return replace(plan, status=PlanStatus.FEASIBLE, note="time limit: the solver's incumbent")


def _build(problem: Problem, pieces: dict[int, list[Piece]]) -> pyo.ConcreteModel:
    index = [(j, s) for j, own in pieces.items() for s in range(len(own))]
    at = {(j, s): pieces[j][s] for j, s in index}
    base = {c.trainer: float(objective.values(c, problem)[0]) for c in problem.candidates}
    m = pyo.ConcreteModel()
    m.y = pyo.Var(index, domain=pyo.Binary)
    m.n = pyo.Var(index, domain=pyo.NonNegativeIntegers)
    m.lower = pyo.Constraint(index, rule=lambda m, j, s: m.n[j, s] >= at[j, s].lo * m.y[j, s])
    m.upper = pyo.Constraint(index, rule=lambda m, j, s: m.n[j, s] <= at[j, s].hi * m.y[j, s])
    m.choice = pyo.Constraint(
        [j for j, own in pieces.items() if own],
        rule=lambda m, j: sum(m.y[j, s] for s in range(len(pieces[j]))) <= 1,
    )
    m.pool = pyo.Constraint(expr=sum(m.n[i] for i in index) <= problem.pool_size)
    m.caps = pyo.ConstraintList()
    for cap in problem.caps:
        capped = [i for i in index if i[0] in cap.trainers]
        if capped:
            m.caps.add(sum(m.n[i] for i in capped) <= cap.n_max)
    m.value = pyo.Objective(
        expr=sum((at[i].constant - base[i[0]]) * m.y[i] + at[i].slope * m.n[i] for i in index),
        sense=pyo.maximize,
    )
    return m


def _pieces(candidate: Candidate, problem: Problem) -> list[Piece]:
    """The linear pieces of v over the allowed sizes above 0, in order and without overlap."""
    v = objective.values(candidate, problem)
    m = len(v) - 1
    found: list[Piece] = []
    lo = candidate.n_min
    while lo <= m:
        hi = lo
        if lo < m:
            slope = v[lo + 1] - v[lo]
            line = v[lo] + slope * np.arange(m - lo + 1)
            off = np.abs(v[lo:] - line) > 1e-9 * np.maximum(1.0, np.abs(line))
            hi = lo + (int(off.argmax()) - 1 if off.any() else m - lo)
        slope = float((v[hi] - v[lo]) / (hi - lo)) if hi > lo else 0.0
        found.append(Piece(lo, hi, float(v[lo]) - slope * lo, slope))
        lo = hi + 1
    return found


def _counts(model: pyo.ConcreteModel, problem: Problem, pieces: dict[int, list[Piece]]) -> dict[int, int]:
    """HiGHS returns integers such as 3.000000000000009: rounded here, once, and checked."""
    counts = {j: round(sum(pyo.value(model.n[j, s]) for s in range(len(own)))) for j, own in pieces.items()}
    for c in problem.candidates:
        n = counts[c.trainer]
        if n and not c.n_min <= n <= c.n_max:
            raise ArithmeticError(f"the solver gave {n} nodes to a trainer of {c.n_min}..{c.n_max}")
    if sum(counts.values()) > problem.pool_size:
        raise ArithmeticError(f"the solver gave {sum(counts.values())} of {problem.pool_size} nodes")
    return counts


def _keep(problem: Problem, note: str) -> Plan:
    """The current map as a plan. A trainer that lost so many nodes that it cannot run gets none, and
    where the map breaks a cap, the last in order give way."""
    counts = {c.trainer: c.current if c.current >= c.n_min else 0 for c in problem.candidates}
    for cap in problem.caps:
        for trainer in reversed([c.trainer for c in problem.candidates if c.trainer in cap.trainers]):
            if sum(counts.get(t, 0) for t in cap.trainers) > cap.n_max:
                counts[trainer] = 0
    value = objective.total(problem, counts)
    return Plan(
        allocator="milp",
        status=PlanStatus.FALLBACK,
        counts=counts,
        objective=value,
        bound=float("inf"),
        note=note,
    )
