"""problem -> plan: how many nodes each trainer gets. Pure: no I/O, no clock, no memory between calls.

Each allocator is a function `(problem, settings) -> Plan`:

- `knapsack`: the exact method; where nodes differ or caps overlap, a plan with a bound (`relax`);
- `milp`: the aggregated mixed-integer model, for every problem, on the solver that the settings name;
- `equal`: equal shares, the published baseline;
- `auto`: the exact method, and the MILP where it leaves a gap.

The plan names the method that decided. Where the MILP was asked for and its solver failed, the exact method
decides instead, and the plan's `fallback` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from bftrainer.allocate import equal, knapsack, relax
from bftrainer.errors import SolverError
from bftrainer.messages.commands.running import SOLVER
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Plan, Problem

LARGEST = 5_000
"""Pairs of trainer and group above which `auto` does not use the MILP: building the model takes seconds."""

Allocator = Callable[[Problem, EngineSettings], Plan]


def _knapsack(problem: Problem, settings: EngineSettings) -> Plan:
    if knapsack.exact_for(problem):
        return knapsack.allocate(problem)
    return relax.allocate(problem, settings.milp_gap)


def _milp(problem: Problem, settings: EngineSettings, start: Plan | None = None) -> Plan:
    exact = knapsack.exact_for(problem)
    try:
        with _pyomo():
            from bftrainer.allocate import milp  # noqa: PLC0415  Pyomo takes half a second to import
        return milp.allocate(
            problem,
            time_limit_s=settings.milp_time_limit_s,
            gap=relax.EXACT if exact else settings.milp_gap,
            stop_early=not exact,
            solver=settings.solver,
            start=start,
        )
    # a licence that ran out, or a problem beyond the solver's precision, must not end the daemon
    except (SolverError, ArithmeticError) as error:
        return replace(start or _knapsack(problem, settings), fallback=str(error))


@contextmanager
def _pyomo() -> Iterator[None]:
    """Around the import of a module that needs Pyomo.

    Raises:
        SolverError: Pyomo cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise SolverError(SOLVER.ends(f"the MILP needs Pyomo: {error}; pip install pyomo")) from error


def _equal(problem: Problem, settings: EngineSettings) -> Plan:
    return equal.allocate(problem)


def _auto(problem: Problem, settings: EngineSettings) -> Plan:
    plan = _knapsack(problem, settings)
    if plan.proven:
        return plan
    if len(problem.candidates) * len(problem.parts) > LARGEST:
        return replace(plan, note=f"{plan.note}; too large for the MILP to better it in time")
    return _milp(problem, settings, plan)


ALLOCATORS: Mapping[str, Allocator] = {
    "auto": _auto,
    "milp": _milp,
    "knapsack": _knapsack,
    "equal": _equal,
}


def decide(problem: Problem, settings: EngineSettings) -> Plan:
    """The plan of the allocator that the settings name; see `Plan.fallback` for when another one decides.

    Raises:
        ValueError: the allocator is `equal`, and the nodes are of several classes.
    """
    return ALLOCATORS[settings.allocator](problem, settings)


def check_solver(settings: EngineSettings) -> str:
    """Try the solver that the settings' allocator may ask, before anything depends on it.

    Returns why the solver does not work, for `auto`, which can do without it; "" if all is well.

    Raises:
        SolverError: the allocator is `milp`, and its solver does not work; the message has the remedy.
    """
    if settings.allocator not in ("milp", "auto"):
        return ""
    try:
        with _pyomo():
            from bftrainer.allocate import solvers  # noqa: PLC0415  Pyomo takes half a second to import
        solvers.require(settings.solver)
    except SolverError as error:
        if settings.allocator == "milp":
            raise
        return str(error)
    return ""
