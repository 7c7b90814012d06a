"""The aggregated mixed-integer model in Pyomo, for every side constraint and for several solvers.

Nodes of one group are interchangeable and nobody migrates, so only counts per trainer j and group g
matter: the model has the same optimum as the published one with a binary per trainer and node (eqs.
1-16), which stands in the tests as its oracle. `assign` turns counts into nodes.

    n_jg                       whole number of nodes of group g
    sum_j n_jg <= |g|          a node serves one trainer, eq. 5
    sum_g n_jg = N_j           within 0 or n_min..n_max, eq. 4; of one class only
    n_jg >= C_jg  or  n_jg <= C_jg, for all g alike                      no migration, eqs. 6-10
    sum of N_j <= cap          for every cap
    t_jg = 1 if n_jg > 0       charged for groups that are expected to leave

The value of N_j is piecewise linear with jumps: at n_min, at the curve's points, and around C_j, where
the rescale cost sets in. Between whole numbers nothing matters, so it is given by its value at the ends
of its linear pieces (`Segment`), and stated in one of three ways (`Encoding`): with weights on these points
of which two neighbours may be above 0 (SOS2, eq. 12, for solvers that know such sets), with a binary
per piece (for those that do not; each trainer's relaxation is then the concave hull), or with weights
alone, where the points lie on a concave function, so that maximising keeps neighbours together by itself.
Where groups are expected to leave within T_fwd, each slice of the time has its own curve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise

import numpy as np
import pyomo.environ as pyo
from pyomo.core.expr.numvalue import NumericValue

from bftrainer.allocate import relax, value
from bftrainer.allocate.relax import Spread
from bftrainer.allocate.solvers import SOLVERS, Limits, solve
from bftrainer.model.problem import Candidate, Plan, PlanStatus, Problem
from bftrainer.performance.curve import Floats

Option = tuple[int, str]
"""A trainer on a class of nodes."""
Key = tuple[int, str, int]
"""A trainer on a class of nodes in a slice of T_fwd."""


PATIENCE = 0.1
"""The share of the time limit after which a search without a better plan is given up."""


class Encoding(StrEnum):
    """How the model states a piecewise-linear value."""

    SOS2 = "sos2"
    BINARIES = "binaries"
    CONCAVE = "concave"


Segment = tuple[tuple[int, float], tuple[int, float]]
"""Where a linear piece of a value begins and ends: two points (nodes, value), perhaps the same."""


def allocate(
    problem: Problem,
    *,
    time_limit_s: float,
    gap: float = relax.EXACT,
    hurry: bool = False,
    solver: str = "highs",
    statement: Encoding | None = None,
    start: Plan | None = None,
) -> Plan:
    """Solve the model, from the exact method's answer to the relaxed problem on (`start`, if it is known).

    On a time-out: the best of the solver's incumbent, that answer and the current map (section 3.6).
    In a `hurry`, the search ends when nothing better has been found for a while (HiGHS only).
    `statement` forces one way to state values; by default the solver's features decide.

    Raises:
        SolverError: the solver is not there, or fails.
    """
    start = start or relax.allocate(problem, gap)
    known = dict(start.spread) or {trainer: (n,) for trainer, n in start.counts.items()}
    model = Model(problem, sos2=SOLVERS[solver].sos2, statement=statement)
    if not model.options:  # no node, or nobody who could run on so few: nothing to solve
        return relax.plan_of(problem, known, start.objective, allocator="milp", gap=gap)
    model.set(known)
    patience_s = PATIENCE * time_limit_s if hurry else None
    answer = solve(solver, model.pyomo, Limits(time_limit_s, gap, patience_s))
    bound = start.bound if answer.bound is None else min(start.bound, answer.bound)
    note = f"{solver}, asked for a relative gap of {gap:g}"
    if answer.optimal:
        plan = relax.plan_of(problem, model.spread(), bound, allocator="milp", gap=gap)
        return replace(plan, status=PlanStatus.OPTIMAL, note=note)
    found = {"the relaxed problem's plan": known, "the current map": _current(problem)}
    if answer.found:
        found["the solver's incumbent"] = model.spread()
    plans = {
        name: relax.plan_of(problem, into, bound, allocator="milp", gap=gap) for name, into in found.items()
    }
    best = max(plans, key=lambda name: plans[name].objective)
    status = PlanStatus.FALLBACK if best == "the current map" else plans[best].status
    return replace(plans[best], status=status, note=f"{note}; stopped before: {best}")


def _current(problem: Problem) -> Spread:
    """The current map. A trainer that lost so many nodes that it cannot run gets none, and where the map
    breaks a cap, the last in order give way."""
    counts = {c.trainer: c.current if c.current >= c.n_min else 0 for c in problem.candidates}
    counts = relax.within_caps(problem, counts)
    return relax.spread(problem, {t: ("", n) for t, n in counts.items()})


class Model:
    """The Pyomo model of one problem, and the way from plans to its variables and back."""

    def __init__(self, problem: Problem, *, sos2: bool, statement: Encoding | None = None) -> None:
        self._problem, self._sos2, self._forced = problem, sos2, statement
        self._by_id = {c.trainer: c for c in problem.candidates}
        self._starts = [start for start, _ in value.slices(problem)]
        self._pieces: dict[Key, list[Segment]] = {}
        base = sum(self._values_of(c) for c in problem.candidates)
        self.options: list[Option] = [(j, name) for j, name, k in self._pieces if k == 0]
        self.ways = {key: self._way(found) for key, found in self._pieces.items()}
        self._most = {  # (option, group) -> the most nodes that it can get there
            (j, name, g): min(part.size, self._by_id[j].n_max)
            for j, name in self.options
            for g, part in enumerate(problem.parts)
            if part.node_class == name and part.size
        }
        self.pyomo = self._variables()
        values = [self._state(key) for key in self._pieces]
        self._constraints()
        self.pyomo.value = pyo.Objective(
            expr=base + pyo.quicksum(values) - pyo.quicksum(self._charges()), sense=pyo.maximize
        )

    def _values_of(self, c: Candidate) -> float:
        """Find the pieces of a trainer's values over having nothing; return what that is worth."""
        problem, base = self._problem, 0.0
        (_, first), *rest = value.slices(problem)
        for name in value.classes(c, problem) or ("",):
            size = sum(g.size for g in problem.parts if g.node_class == name)
            row = value.tables((c,), size, first, name)[0]
            base = float(row[0])
            if c.n_min < len(row) and c.curve_on(name):
                self._pieces[c.trainer, name, 0] = pieces(row - base, c.n_min)
                for k, (_, duration) in enumerate(rest, start=1):
                    later = value.later(c, len(row) - 1, duration, name)
                    self._pieces[c.trainer, name, k] = pieces(later, 0)
        return base

    def _way(self, found: list[Segment]) -> Encoding:
        if self._forced is not None and self._forced is not Encoding.CONCAVE:
            return self._forced
        if _concave(found):
            return Encoding.CONCAVE
        return Encoding.SOS2 if self._sos2 else Encoding.BINARIES

    def _variables(self) -> pyo.ConcreteModel:
        m = pyo.ConcreteModel()
        weights, choices = [], []
        for key, way in self.ways.items():
            found = self._pieces[key]
            if way is Encoding.BINARIES:
                choices += [(*key, s) for s in range(len(found))]
            else:
                weights += [(*key, i) for i in range(len(_points(found)))]
        m.n = pyo.Var(
            list(self._most), domain=pyo.NonNegativeIntegers, bounds=lambda m, *i: (0, self._most[i])
        )
        m.on = pyo.Var(self.options, domain=pyo.Binary)
        m.w = pyo.Var(weights, bounds=(0.0, 1.0))
        m.y = pyo.Var(choices, domain=pyo.Binary)
        m.p = pyo.Var(choices, domain=pyo.NonNegativeReals)
        neighbours: dict[Key, list[tuple[int, str, int, int]]] = {}
        for index in weights:
            if self.ways[index[:3]] is Encoding.SOS2:
                neighbours.setdefault(index[:3], []).append(index)
        if neighbours:
            m.neighbours = pyo.SOSConstraint(list(neighbours), var=m.w, index=neighbours, sos=2)
        m.rows = pyo.ConstraintList()
        held = {c.trainer: self._problem.held(c) for c in self._problem.candidates}
        groups = Counter(i[:2] for i in self._most)
        movable = [option for option in self.options if self._by_id[option[0]].current and groups[option] > 1]
        self._held = {(j, name, g): held[j][g] for j, name, g in self._most}
        m.shrink = pyo.Var(movable, domain=pyo.Binary)
        self._charged = {
            i: charge
            for i in self._most
            if (charge := value.charge(self._by_id[i[0]], self._problem.parts[i[2]].departures, i[1])) > 0
        }
        m.touch = pyo.Var(list(self._charged), domain=pyo.Binary)
        return m

    def _nodes(self, j: int, name: str, k: int) -> list[pyo.Var]:
        """The variables whose sum is N_jk: the nodes that are still there when slice k begins."""
        parts = self._problem.parts
        start = self._starts[k]
        return [
            self.pyomo.n[j, name, g]
            for g, part in enumerate(parts)
            if (j, name, g) in self._most and (k == 0 or part.remaining_s > start)
        ]

    def _state(self, key: Key) -> NumericValue:
        """Tie the nodes in a slice to what they are worth; return that."""
        m, found = self.pyomo, self._pieces[key]
        nodes, on = pyo.quicksum(self._nodes(*key)), m.on[key[:2]]
        if self.ways[key] is Encoding.BINARIES:
            y = [m.y[*key, s] for s in range(len(found))]
            p = [m.p[*key, s] for s in range(len(found))]
            m.rows.add(pyo.quicksum(y) == on)
            m.rows.add(pyo.quicksum(p) == nodes)
            for (a, b), own, share in zip(found, y, p, strict=True):
                m.rows.add(share >= a[0] * own)
                m.rows.add(share <= b[0] * own)
            lines = [_line(piece) for piece in found]
            return pyo.quicksum(g * own + h * share for (g, h), own, share in zip(lines, y, p, strict=True))
        points = _points(found)
        w = [m.w[*key, i] for i in range(len(points))]
        m.rows.add(pyo.quicksum(w) == on)
        m.rows.add(pyo.quicksum(n * own for (n, _), own in zip(points, w, strict=True)) == nodes)
        return pyo.quicksum(v * own for (_, v), own in zip(points, w, strict=True))

    def _constraints(self) -> None:
        m, problem = self.pyomo, self._problem
        of_trainer: dict[int, list[Option]] = {}
        for option in self.options:
            of_trainer.setdefault(option[0], []).append(option)
        for own in of_trainer.values():
            if len(own) > 1:  # one class only
                m.rows.add(pyo.quicksum(m.on[o] for o in own) <= 1)
        in_group: dict[int, list[pyo.Var]] = {}
        for i in self._most:
            in_group.setdefault(i[2], []).append(m.n[i])
        for g, nodes in in_group.items():
            m.rows.add(pyo.quicksum(nodes) <= problem.parts[g].size)
        for cap in problem.caps:
            capped = [m.n[i] for i in self._most if i[0] in cap.trainers]
            if capped:
                m.rows.add(pyo.quicksum(capped) <= cap.n_max)
        for i, most in self._most.items():
            if i[:2] in m.shrink:
                held, shrink = self._held[i], m.shrink[i[:2]]
                if held:
                    m.rows.add(m.n[i] >= held * (m.on[i[:2]] - shrink))
                m.rows.add(m.n[i] <= held + (most - held) * (1 - shrink))
            if i in self._charged:
                m.rows.add(m.n[i] <= most * m.touch[i])

    def _charges(self) -> Iterator[NumericValue]:
        for i, charge in self._charged.items():
            yield charge * self.pyomo.touch[i]

    # plans

    def set(self, into: Spread) -> None:
        """Give every variable the value that it has in a plan: where the solver starts."""
        m = self.pyomo
        uses = {j: self._class_of(own) for j, own in into.items()}
        for i in self._most:
            m.n[i].value = into[i[0]][i[2]] if uses[i[0]] == i[1] else 0
        for option in self.options:
            m.on[option].value = int(uses[option[0]] == option[1])
        for option in m.shrink:
            m.shrink[option].value = int(sum(into[option[0]]) < self._by_id[option[0]].current)
        for i in self._charged:
            m.touch[i].value = int(m.n[i].value > 0)
        for key, found in self._pieces.items():
            n, on = sum(v.value for v in self._nodes(*key)), m.on[key[:2]].value
            at = next((s for s, (a, b) in enumerate(found) if on and a[0] <= n <= b[0]), None)
            if self.ways[key] is Encoding.BINARIES:
                for s in range(len(found)):
                    m.y[*key, s].value, m.p[*key, s].value = int(s == at), n if s == at else 0.0
            else:
                weights = _weights(found, at, n)
                for k, weight in enumerate(weights):
                    m.w[*key, k].value = weight

    def _class_of(self, own: tuple[int, ...]) -> str | None:
        used = [part.node_class for part, n in zip(self._problem.parts, own, strict=True) if n]
        return used[0] if used else None

    def spread(self) -> Spread:
        """The solver's plan. Solvers return integers such as 3.000000000000009: rounded here, once,
        and checked.

        Raises:
            ArithmeticError: what the solver calls a solution breaks a constraint.
        """
        problem = self._problem
        into = {c.trainer: [0] * len(problem.parts) for c in problem.candidates}
        for i in self._most:
            into[i[0]][i[2]] += round(pyo.value(self.pyomo.n[i]))
        for g, part in enumerate(problem.parts):
            if sum(n[g] for n in into.values()) > part.size:
                raise ArithmeticError(f"the solver gave more than the {part.size} nodes of group {g}")
        for c in problem.candidates:
            if sum(into[c.trainer]) and not c.n_min <= sum(into[c.trainer]) <= c.n_max:
                raise ArithmeticError(
                    f"the solver gave {sum(into[c.trainer])} nodes to a trainer of {c.n_min}..{c.n_max}"
                )
        for cap in problem.caps:
            if sum(sum(into[t]) for t in cap.trainers if t in into) > cap.n_max:
                raise ArithmeticError(f"the solver broke the cap of {cap.n_max} nodes")
        return {trainer: tuple(n) for trainer, n in into.items()}


# --- pieces --------------------------------------------------------------------------------------


def pieces(v: Floats, lo: int) -> list[Segment]:
    """The linear pieces of v(lo)..v(m), in order and without overlap."""
    m = len(v) - 1
    while m > lo and not np.isfinite(v[m]):
        m -= 1
    found: list[Segment] = []
    while lo <= m:
        hi = lo
        if lo < m:
            slope = v[lo + 1] - v[lo]
            line = v[lo] + slope * np.arange(m - lo + 1)
            off = np.abs(v[lo : m + 1] - line) > 1e-9 * np.maximum(1.0, np.abs(line))
            hi = lo + (int(off.argmax()) - 1 if off.any() else m - lo)
        found.append(((lo, float(v[lo])), (hi, float(v[hi]))))
        lo = hi + 1
    return found


def _points(found: list[Segment]) -> list[tuple[int, float]]:
    """The ends of the pieces, each once."""
    return list(dict.fromkeys(point for piece in found for point in piece))


def _line(piece: Segment) -> tuple[float, float]:
    """(constant, slope) of a piece."""
    (lo, v), (hi, w) = piece
    slope = (w - v) / (hi - lo) if hi > lo else 0.0
    return v - slope * lo, slope


def _concave(found: list[Segment]) -> bool:
    slopes = [(w - v) / (n - m) for (m, v), (n, w) in pairwise(_points(found))]
    return all(after <= before for before, after in pairwise(slopes))


def _weights(found: list[Segment], at: int | None, n: int) -> list[float]:
    """The weights of the points at which piece `at` gives n; all 0 for none."""
    points = _points(found)
    weights = dict.fromkeys(points, 0.0)
    if at is not None:
        a, b = found[at]
        weights[b] = (n - a[0]) / (b[0] - a[0]) if b[0] > a[0] else 1.0
        weights[a] = 1.0 - weights[b] if a != b else 1.0
    return list(weights.values())
