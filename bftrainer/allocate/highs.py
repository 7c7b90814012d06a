"""HiGHS through its own interface, which takes the model as one matrix.

Pyomo's interfaces pass it row by row, which takes longer than HiGHS takes to solve it.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import highspy
import pyomo.environ as pyo
from pyomo.repn.plugins import standard_form


def _sparse_alone() -> None:
    """Have Pyomo make matrices with scipy.sparse: it loads half of SciPy with it otherwise, 60 MB."""
    finders = sys.meta_path[:]
    sys.meta_path[:] = [finder for finder in finders if not type(finder).__module__.startswith("pyomo.")]
    try:
        import scipy.sparse  # noqa: PLC0415

        standard_form.scipy = scipy
    finally:
        sys.meta_path[:] = finders


_sparse_alone()


def solve(
    model: pyo.ConcreteModel, time_s: float, gap: float, patience_s: float | None
) -> tuple[bool, bool, float]:
    """Have HiGHS maximise `model`, from the values of its variables on; they then have the best ones found.

    The limits are those of `solvers.SolverLimits`. Returns whether the solution is optimal, whether there is
    one, and the bound.
    """
    form = standard_form.LinearStandardFormCompiler().write(model, mixed_form=True, set_sense=None)
    columns = form.columns
    solver = highspy.Highs()
    for option, value in {
        "output_flag": False,
        "threads": 1,
        "time_limit": time_s,
        "mip_rel_gap": gap,
        "mip_abs_gap": 1e-6,
    }.items():
        solver.setOptionValue(option, value)
    solver.passModel(_lp_of(form))
    start = highspy.HighsSolution()
    start.col_value = [var.value or 0.0 for var in columns]
    solver.setSolution(start)
    if patience_s is not None:
        _stop_without_progress(solver, patience_s)
    solver.run()
    info = solver.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if found:
        for var, value in zip(columns, solver.getSolution().col_value, strict=True):
            var.set_value(value, skip_validation=True)
    optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return optimal, found, info.mip_dual_bound


def _lp_of(form: Any) -> highspy.HighsLp:
    """The model in HiGHS's own form, from Pyomo's standard form of it."""
    lp = highspy.HighsLp()
    columns, rows = form.columns, form.rows
    lp.num_col_, lp.num_row_ = len(columns), len(rows)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.offset_ = float(form.c_offset[0])
    lp.col_cost_ = form.c.toarray()[0]
    lp.col_lower_ = [var.lb if var.lb is not None else -highspy.kHighsInf for var in columns]
    lp.col_upper_ = [var.ub if var.ub is not None else highspy.kHighsInf for var in columns]
    kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
    lp.integrality_ = [kinds[not var.is_continuous()] for var in columns]
    # a row's bound_type: -1 for >=, 0 for ==, 1 for <=
    sides = [row.bound_type for row in rows]
    lp.row_lower_ = [b if side <= 0 else -highspy.kHighsInf for b, side in zip(form.rhs, sides, strict=True)]
    lp.row_upper_ = [b if side >= 0 else highspy.kHighsInf for b, side in zip(form.rhs, sides, strict=True)]
    matrix = form.A.tocsc()
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    return lp


def _stop_without_progress(solver: highspy.Highs, patience_s: float) -> None:
    """Have HiGHS stop when it has found nothing better for `patience_s`."""
    latest = [time.perf_counter()]

    def found(event: Any) -> None:
        latest[0] = time.perf_counter()

    def check(event: Any) -> None:
        if time.perf_counter() - latest[0] > patience_s:
            event.interrupt()

    solver.cbMipImprovingSolution.subscribe(found)
    solver.cbMipInterrupt.subscribe(check)
