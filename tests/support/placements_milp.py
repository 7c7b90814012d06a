"""The MILP with nodes: how many GPUs of which node each trainer gets, stated in full and given to HiGHS.

x_jk   whole number of GPUs of node k that trainer j has;    y_jk = 1 if it has any
sum_j x_jk <= |k|
x_jk >= h_jk  or  x_jk <= h_jk, for all k alike              no migration
sum_k x_jk = N_j, on one of the linear pieces of its worth: those of one node, or those of several
sum_k y_jk <= 1 on the former, and no node has two trainers on the latter where these are kept apart
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyomo.environ as pyo

from bftrainer.allocate import solvers
from bftrainer.allocate.place import by_node
from bftrainer.allocate.solvers import SolverLimits
from bftrainer.engine.gpus.polish import GpuHolder, Ground, Row


@dataclass(frozen=True, slots=True)
class Solved:
    """The best placement's worth, and what none can exceed."""

    worth: float
    bound: float


def solved(holders: Sequence[GpuHolder], ground: Ground, time_s: float, gap: float = 1e-6) -> Solved:
    """The best placement that HiGHS finds in so many seconds."""
    model = _model(holders, ground)
    answer = solvers.SOLVERS["highs"].run(model, SolverLimits(time_s, gap))
    worth = float(pyo.value(model.worth)) if answer.found else float("-inf")
    return Solved(worth, float("inf") if answer.bound is None else answer.bound)


def pieces(row: Row) -> list[tuple[int, int]]:
    """(first, last) count of the row's linear stretches of finite values."""
    found: list[tuple[int, int]] = []
    for n, worth in enumerate(row):
        if worth == float("-inf"):
            continue
        if found and found[-1][1] == n - 1:
            first = found[-1][0]
            step = row[first + 1] - row[first] if first < n - 1 else worth - row[n - 1]
            if abs(worth - row[n - 1] - step) <= 1e-7 * max(1.0, abs(worth)):
                found[-1] = first, n
                continue
        found.append((n, n))
    return found


def _model(holders: Sequence[GpuHolder], ground: Ground) -> pyo.ConcreteModel:
    sizes = {node: len(own) for node, own in sorted(by_node(ground.pool).items())}
    m = pyo.ConcreteModel()
    pairs = [(j, node) for j in range(len(holders)) for node in sizes]
    m.x = pyo.Var(pairs, domain=pyo.NonNegativeIntegers, bounds=lambda _, j, node: (0, sizes[node]))
    m.y = pyo.Var(pairs, domain=pyo.Binary)
    m.grows = pyo.Var(range(len(holders)), domain=pyo.Binary)
    m.rows = pyo.ConstraintList()
    worth = sum(_trainer(m, j, h, sizes) for j, h in enumerate(holders))
    m.worth = pyo.Objective(expr=worth, sense=pyo.maximize)
    for node, size in sizes.items():
        m.rows.add(sum(m.x[j, node] for j in range(len(holders))) <= size)
    _rules(m, holders, ground, sizes)
    for cap in ground.caps:
        own = [j for j, h in enumerate(holders) if h.trainer in cap.trainers]
        if own:
            m.rows.add(sum(m.x[j, node] for j in own for node in sizes) <= cap.n_max)
    return m


def _trainer(m: pyo.ConcreteModel, j: int, h: GpuHolder, sizes: dict[str, int]) -> pyo.Expression:
    """A trainer's rows; returns its worth. `wide{j}` is 1 if it may be on several nodes."""
    held = {node: len(own) for node, own in by_node(h.held).items()}
    for node, size in sizes.items():
        x, y, has = m.x[j, node], m.y[j, node], held.get(node, 0)
        m.rows.add(x <= size * y)
        m.rows.add(x >= (h.whole or 1) * y)
        if held:
            m.rows.add(x >= has * m.grows[j])
            m.rows.add(x <= has + (size - has) * m.grows[j])
    stretches = [(row, *piece) for row in (h.alone, h.across) for piece in pieces(row)]
    alone = len(pieces(h.alone))
    on = pyo.Var(range(len(stretches)), domain=pyo.Binary)
    size_on = pyo.Var(range(len(stretches)), domain=pyo.NonNegativeReals)
    m.add_component(f"on{j}", on)
    m.add_component(f"size{j}", size_on)
    worth = 0
    for s, (row, first, last) in enumerate(stretches):
        m.rows.add(size_on[s] >= first * on[s])
        m.rows.add(size_on[s] <= last * on[s])
        slope = (row[last] - row[first]) / (last - first) if last > first else 0.0
        worth += (row[first] - slope * first) * on[s] + slope * size_on[s]
    m.rows.add(sum(on[s] for s in on) == 1)
    m.rows.add(sum(size_on[s] for s in on) == sum(m.x[j, node] for node in sizes))
    wide = pyo.Var(domain=pyo.Binary)
    m.add_component(f"wide{j}", wide)
    m.rows.add(wide == sum(on[s] for s in range(alone, len(stretches))))
    m.rows.add(sum(m.y[j, node] for node in sizes) <= 1 + (len(sizes) - 1) * wide)
    return worth


def _rules(m: pyo.ConcreteModel, holders: Sequence[GpuHolder], ground: Ground, sizes: dict[str, int]) -> None:
    """Who may share a node."""
    everybody = range(len(holders))
    if ground.rules.avoid_interference:
        m.far = pyo.Var([(j, node) for j in everybody for node in sizes], bounds=(0, 1))
        for node in sizes:
            for j in everybody:
                m.rows.add(m.far[j, node] >= m.y[j, node] + m.component(f"wide{j}") - 1)
            m.rows.add(sum(m.far[j, node] for j in everybody) <= 1)
    users = sorted({h.user for h in holders})
    if not ground.rules.users_share and len(users) > 1:
        m.has = pyo.Var([(user, node) for user in users for node in sizes], bounds=(0, 1))
        for node in sizes:
            for j, h in enumerate(holders):
                m.rows.add(m.y[j, node] <= m.has[h.user, node])
            m.rows.add(sum(m.has[user, node] for user in users) <= 1)
