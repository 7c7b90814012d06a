"""state -> plan: who gets how many nodes. Pure: no I/O, no clock, no memory between calls.

Each allocator is a function `(problem, time_limit_s) -> Plan`:

- `knapsack`: exact dynamic programme, for problems without constraints across trainers but the pool;
- `milp`: the aggregated mixed-integer model, for every problem;
- `equal`: equal shares, the published baseline;
- `auto`: the knapsack where it is exact, the MILP otherwise. The plan names the one that decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bftrainer.allocate import equal, knapsack
from bftrainer.model import Plan, Problem

Allocator = Callable[[Problem, float], Plan]


def _knapsack(problem: Problem, time_limit_s: float) -> Plan:
    return knapsack.allocate(problem)


def _milp(problem: Problem, time_limit_s: float) -> Plan:
    from bftrainer.allocate import milp  # noqa: PLC0415  Pyomo takes half a second to import

    return milp.allocate(problem, time_limit_s=time_limit_s)


def _equal(problem: Problem, time_limit_s: float) -> Plan:
    return equal.allocate(problem)


def _auto(problem: Problem, time_limit_s: float) -> Plan:
    chosen = _knapsack if knapsack.exact_for(problem) else _milp
    return chosen(problem, time_limit_s)


ALLOCATORS: Mapping[str, Allocator] = {
    "auto": _auto,
    "milp": _milp,
    "knapsack": _knapsack,
    "equal": _equal,
}
