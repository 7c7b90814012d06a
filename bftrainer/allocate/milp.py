"""The aggregated mixed-integer model in Pyomo, for every side constraint and for several solvers.

Nodes of one group are interchangeable and no trainer migrates, so only counts per trainer j and group g
matter: the model has the same optimum as the published one with a binary per trainer and node (eqs.
1-16), which stands in the tests as its oracle. `assign` turns counts into nodes.

    n_jg                       whole number of nodes of group g
    sum_j n_jg <= |g|          a node serves one trainer, eq. 5
    sum_g n_jg = N_j           within 0 or n_min..n_max, eq. 4, and one of its sizes; of one class only
    n_jg >= C_jg  or  n_jg <= C_jg, for all g alike                      no migration, eqs. 6-10
    sum of N_j <= cap          for every cap
    t_jg = 1 if n_jg > 0       charged for groups that are expected to leave

The value of N_j is piecewise linear with jumps, and stated in one of three ways, see `piecewise`. Where
groups are expected to leave within T_fwd, each slice of the time has its own function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pyomo.environ as pyo
from pyomo.core.expr.numvalue import NumericValue

from bftrainer.allocate import relax, value
from bftrainer.allocate.piecewise import (
    Encoding,
    Segment,
    encoding_of,
    gaps,
    line_of,
    points_of,
    segments_of,
    weights_of,
)
from bftrainer.allocate.relax import Spread
from bftrainer.allocate.solvers import SOLVERS, SolverLimits, solve
from bftrainer.model.problem import Candidate, Plan, PlanStatus, Problem

Option = tuple[int, str]
"""A trainer on a class of nodes."""
Key = tuple[int, str, int]
"""A trainer on a class of nodes in a slice of T_fwd."""


PATIENCE = 0.1
"""Share of the time limit without a better plan after which `stop_early` ends the search."""


def allocate(
    problem: Problem,
    *,
    time_limit_s: float,
    gap: float = relax.EXACT,
    stop_early: bool = False,
    solver: str = "highs",
    encoding: Encoding | None = None,
    start: Plan | None = None,
) -> Plan:
    """Solve the model. The search starts from the exact method's plan for the relaxed problem (`start`).

    When the time limit strikes, the plan is the best of the solver's incumbent, `start` and the current map
    (section 3.6). With `stop_early`, HiGHS also stops when it has found nothing better for a while.
    `encoding` forces one encoding of values; by default the function and the solver's features decide.

    Raises:
        SolverError: the solver is not installed, has no licence for so large a model, or failed.
        ArithmeticError: what the solver calls a solution breaks a constraint.
    """
    start = start or relax.allocate(problem, gap)
    known = dict(start.spread) or {trainer: (n,) for trainer, n in start.counts.items()}
    model = Model(problem, sos2=SOLVERS[solver].sos2, encoding=encoding)
    if not model.options:  # no node, or no trainer that could run on so few: nothing to solve
        return relax.plan_of(problem, known, start.objective, allocator="milp", gap=gap)
    model.set(known)
    patience_s = PATIENCE * time_limit_s if stop_early else None
    answer = solve(solver, model.pyomo, SolverLimits(time_limit_s, gap, patience_s))
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
    """The current map as a plan. A trainer that cannot run on what it has left goes down to the next size
    that it allows, or to none. Where the map breaks a cap, the last trainers in order get fewer."""
    counts = {c.trainer: c.fitting(c.current) for c in problem.candidates}
    counts = relax.within_caps(problem, counts)
    return relax.spread(problem, {t: ("", n) for t, n in counts.items()})


class Model:
    """The Pyomo model of one problem, and the way from plans to its variables and back."""

    def __init__(self, problem: Problem, *, sos2: bool, encoding: Encoding | None = None) -> None:
        self._problem, self._sos2, self._forced = problem, sos2, encoding
        self._by_id = {c.trainer: c for c in problem.candidates}
        self._starts = [start for start, _ in value.slices(problem)]
        self._segments: dict[Key, list[Segment]] = {}
        base = sum(self._values_of(c) for c in problem.candidates)
        self.options: list[Option] = [(j, name) for j, name, k in self._segments if k == 0]
        self.encodings = {key: self._encoding(found) for key, found in self._segments.items()}
        self._most = {  # (option, group) -> the most nodes that it can get there
            (j, name, g): min(part.size, self._by_id[j].n_max)
            for j, name in self.options
            for g, part in enumerate(problem.parts)
            if part.node_class == name and part.size
        }
        self.pyomo = self._variables()
        values = [self._stated(key) for key in self._segments]
        self._constraints()
        self.pyomo.value = pyo.Objective(
            expr=base + pyo.quicksum(values) - pyo.quicksum(self._charges()), sense=pyo.maximize
        )

    def _values_of(self, c: Candidate) -> float:
        """Find the segments of what nodes add to having none; return what having none is worth."""
        problem, base = self._problem, 0.0
        (_, first), *rest = value.slices(problem)
        for name in value.classes(c, problem) or ("",):
            size = sum(g.size for g in problem.parts if g.node_class == name)
            row = value.tables((c,), size, first, name)[0]
            base = float(row[0])
            own = segments_of(row - base, c.n_min)
            if own and c.curve_on(name):
                self._segments[c.trainer, name, 0] = own
                for k, (_, duration) in enumerate(rest, start=1):
                    later = value.later(c, len(row) - 1, duration, name)
                    self._segments[c.trainer, name, k] = segments_of(later, 0)
        return base

    def _encoding(self, found: list[Segment]) -> Encoding:
        """CONCAVE cannot be forced on a function that is not concave, nor SOS2 on one with gaps: there they
        would be wrong."""
        if self._forced is Encoding.BINARIES or (self._forced is Encoding.SOS2 and not gaps(found)):
            return self._forced
        return encoding_of(found, sos2=self._sos2)

    def _variables(self) -> pyo.ConcreteModel:
        """The model with its variables, and what the constraints need to know of them."""
        m = pyo.ConcreteModel()
        weights, choices = [], []
        for key, encoding in self.encodings.items():
            found = self._segments[key]
            if encoding is Encoding.BINARIES:
                choices += [(*key, s) for s in range(len(found))]
            else:
                weights += [(*key, i) for i in range(len(points_of(found)))]
        m.n = pyo.Var(
            list(self._most), domain=pyo.NonNegativeIntegers, bounds=lambda m, *i: (0, self._most[i])
        )
        m.on = pyo.Var(self.options, domain=pyo.Binary)
        m.w = pyo.Var(weights, bounds=(0.0, 1.0))
        m.y = pyo.Var(choices, domain=pyo.Binary)
        m.p = pyo.Var(choices, domain=pyo.NonNegativeReals)
        neighbours: dict[Key, list[tuple[int, str, int, int]]] = {}
        for index in weights:
            if self.encodings[index[:3]] is Encoding.SOS2:
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

    def _stated(self, key: Key) -> NumericValue:
        """Tie the nodes in a slice to what they are worth; return that."""
        m, found = self.pyomo, self._segments[key]
        nodes, on = pyo.quicksum(self._nodes(*key)), m.on[key[:2]]
        if self.encodings[key] is Encoding.BINARIES:
            y = [m.y[*key, s] for s in range(len(found))]
            p = [m.p[*key, s] for s in range(len(found))]
            m.rows.add(pyo.quicksum(y) == on)
            m.rows.add(pyo.quicksum(p) == nodes)
            for (a, b), own, share in zip(found, y, p, strict=True):
                m.rows.add(share >= a[0] * own)
                m.rows.add(share <= b[0] * own)
            lines = [line_of(segment) for segment in found]
            return pyo.quicksum(g * own + h * share for (g, h), own, share in zip(lines, y, p, strict=True))
        points = points_of(found)
        w = [m.w[*key, i] for i in range(len(points))]
        m.rows.add(pyo.quicksum(w) == on)
        m.rows.add(pyo.quicksum(n * own for (n, _), own in zip(points, w, strict=True)) == nodes)
        return pyo.quicksum(v * own for (_, v), own in zip(points, w, strict=True))

    def _constraints(self) -> None:
        """Add all constraints but those that tie nodes to values, see `_stated`."""
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
        """Charges of each trainer for each group that it touches and that is expected to leave."""
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
        for key, found in self._segments.items():
            n, on = sum(v.value for v in self._nodes(*key)), m.on[key[:2]].value
            at = next((s for s, (a, b) in enumerate(found) if on and a[0] <= n <= b[0]), None)
            if self.encodings[key] is Encoding.BINARIES:
                for s in range(len(found)):
                    m.y[*key, s].value, m.p[*key, s].value = int(s == at), n if s == at else 0.0
            else:
                weights = weights_of(found, at, n)
                for k, weight in enumerate(weights):
                    m.w[*key, k].value = weight

    def _class_of(self, own: tuple[int, ...]) -> str | None:
        """The class of the nodes that a trainer has in a plan; None if it has none."""
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
            if not c.allows(sum(into[c.trainer])):
                raise ArithmeticError(
                    f"the solver gave {sum(into[c.trainer])} nodes to a trainer of {c.n_min}..{c.n_max}, "
                    f"{c.sizes}"
                )
        for cap in problem.caps:
            if sum(sum(into[t]) for t in cap.trainers if t in into) > cap.n_max:
                raise ArithmeticError(f"the solver broke the cap of {cap.n_max} nodes")
        return {trainer: tuple(n) for trainer, n in into.items()}
