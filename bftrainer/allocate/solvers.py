"""The solvers that can solve the model, and what each of them can do.

A solver that Pyomo knows is added by a line in `SOLVERS`. All use one thread: decisions are small, and the
daemon shares its machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyomo.environ as pyo

from bftrainer.errors import SolverError
from bftrainer.messages.commands.running import SOLVER

NOT_HERE = "it is not available"
INFINITE = 1e20
"""Solvers mean by a bound above this that they know none."""


@dataclass(frozen=True, slots=True)
class SolverLimits:
    """Limits of a solver: it may stop after `time_s`, at a relative `gap`, or, HiGHS only, when it has found
    nothing better for `patience_s`."""

    time_s: float
    gap: float
    patience_s: float | None = None


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """A solver's result. If it has `found` a solution, the model's variables have its values."""

    optimal: bool
    found: bool
    bound: float | None


def finite(bound: float | None) -> float | None:
    """A solver's bound; None if it knows none."""
    return float(bound) if bound is not None and abs(bound) < INFINITE else None


@dataclass(frozen=True, slots=True)
class Features:
    """Properties of a solver, and the function that calls it."""

    sos2: bool  # whether it takes special ordered sets
    run: Callable[[pyo.ConcreteModel, SolverLimits], SolverAnswer]
    available: Callable[[], object]
    install: str  # how to get it


def _highs(model: pyo.ConcreteModel, limits: SolverLimits) -> SolverAnswer:
    """HiGHS, imported only when it is asked: if its library is broken, the other solvers still work."""
    from bftrainer.allocate import highs  # noqa: PLC0415

    optimal, found, bound = highs.solve(model, limits.time_s, limits.gap, limits.patience_s)
    return SolverAnswer(optimal, found, finite(bound))


def _direct(name: str, model: pyo.ConcreteModel, limits: SolverLimits) -> SolverAnswer:
    """Solvers with a Python interface of their own."""
    from pyomo.contrib.solver.common.factory import SolverFactory  # noqa: PLC0415
    from pyomo.contrib.solver.common.results import SolutionStatus  # noqa: PLC0415

    solver = SolverFactory(name)
    if not solver.available():
        raise SolverError(NOT_HERE)
    config: dict[str, Any] = {"time_limit": limits.time_s, "rel_gap": limits.gap, "threads": 1}
    result = solver.solve(
        model,
        load_solutions=False,
        raise_exception_on_nonoptimal_result=False,
        warmstart_discrete_vars=True,
        **config,
    )
    found = result.solution_status in (SolutionStatus.feasible, SolutionStatus.optimal)
    if found:
        result.solution_loader.load_vars()
    return SolverAnswer(
        optimal=result.solution_status == SolutionStatus.optimal,
        found=found,
        bound=finite(result.objective_bound),
    )


def _legacy(
    name: str, options: Mapping[str, str], model: pyo.ConcreteModel, limits: SolverLimits
) -> SolverAnswer:
    """Run a solver behind Pyomo's older interface; `options`: its names of our options."""
    solver = pyo.SolverFactory(name)
    if not solver.available(exception_flag=False):
        raise SolverError(NOT_HERE)
    settings = {options["gap"]: limits.gap, options["threads"]: 1, options["time"]: limits.time_s}
    result = solver.solve(model, load_solutions=False, options=settings)
    found = len(result.solution) > 0
    if found:
        model.solutions.load_from(result)
    return SolverAnswer(
        optimal=result.solver.termination_condition == pyo.TerminationCondition.optimal,
        found=found,
        bound=finite(result.problem.upper_bound),
    )


def _has_direct(name: str) -> object:
    from pyomo.contrib.solver.common.factory import SolverFactory  # noqa: PLC0415

    return SolverFactory(name).available()


def _has_legacy(name: str) -> object:
    return pyo.SolverFactory(name).available(exception_flag=False)


SOLVERS: Mapping[str, Features] = {
    "highs": Features(sos2=False, run=_highs, available=lambda: True, install="pip install highspy scipy"),
    "gurobi": Features(
        sos2=True,
        run=partial(_direct, "gurobi_persistent"),
        available=partial(_has_direct, "gurobi_persistent"),
        install="pip install gurobipy, with a licence",
    ),
    "cplex": Features(
        sos2=True,
        run=partial(
            _legacy,
            "cplex_direct",
            {"gap": "mip_tolerances_mipgap", "threads": "threads", "time": "timelimit"},
        ),
        available=partial(_has_legacy, "cplex_direct"),
        install="install IBM's Python package cplex, with a licence",
    ),
    "scip": Features(
        sos2=True,
        run=partial(_direct, "scip_direct"),
        available=partial(_has_direct, "scip_direct"),
        install="pip install pyscipopt",
    ),
    "cbc": Features(
        sos2=False,  # it has such sets, but Pyomo's interface to it passes none
        run=partial(_legacy, "cbc", {"gap": "ratioGap", "threads": "threads", "time": "sec"}),
        available=partial(_has_legacy, "cbc"),
        install="install Debian's package coinor-cbc",
    ),
}
"""Solver name -> what distinguishes it, and how to call it."""


def available(name: str) -> bool:
    """True if a solver is installed here."""
    return bool(SOLVERS[name].available())


TRIAL = SolverLimits(time_s=10.0, gap=0.0)
"""For the smallest of models, which every solver that works answers in milliseconds."""


def trial(name: str) -> str:
    """Have a solver solve a model of one variable. Returns what is wrong with it, or "" if nothing is.

    Only solving shows that a solver works: it may be installed, and lack its licence or a library.
    """
    if not available(name):
        return "is not here"
    model = pyo.ConcreteModel()
    model.x = pyo.Var(domain=pyo.Binary, initialize=0)
    model.value = pyo.Objective(expr=model.x, sense=pyo.maximize)
    try:
        answer = SOLVERS[name].run(model, TRIAL)
    except Exception as error:  # noqa: BLE001  whatever a solver's interface raises
        return f"does not work here: {error}"
    solved = answer.optimal and round(pyo.value(model.x)) == 1
    return "" if solved else "does not work here: it cannot solve a model of one variable"


def require(name: str) -> None:
    """Make sure that a solver is installed here and solves.

    Raises:
        SolverError: it does not; the message says why, how to get it, and which others solve.
    """
    wrong = trial(name)
    if wrong:
        others = ", ".join(other for other in SOLVERS if other != name and not trial(other))
        instead = f"or take one of: {others}" if others else "no other solver works here either"
        raise SolverError(SOLVER.ends(f"solver {name} {wrong}; {SOLVERS[name].install}, {instead}"))


def solve(name: str, model: pyo.ConcreteModel, limits: SolverLimits) -> SolverAnswer:
    """Have a solver maximise `model`. Solvers that can do so start from the values of its variables.

    Raises:
        SolverError: it is not installed, has no licence for so large a model, or failed.
    """
    features = SOLVERS[name]
    try:
        return features.run(model, limits)
    except SolverError as error:
        said = f"solver {name}: {error}; {features.install}, or take another"
        raise SolverError(SOLVER.ends(said)) from error
    except Exception as error:  # whatever a solver's interface raises
        said = f"solver {name} failed: {error}; {features.install}, or take another"
        raise SolverError(SOLVER.ends(said)) from error
