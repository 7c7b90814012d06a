"""Without a working solver: the plan says why the MILP did not make it, and `milp` does not start."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from bftrainer.allocate import check_solver, decide, milp, solvers
from bftrainer.allocate.solvers import SolverAnswer
from bftrainer.errors import SolverError
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Candidate, Cap, Problem

PLAIN = Problem(
    pool_size=8,
    t_fwd_s=120.0,
    candidates=tuple(
        Candidate(trainer=j, n_min=1, n_max=8, current=0, curve=((8, 8.0 * j),)) for j in (1, 2)
    ),
)
OVERLAPPING = replace(
    PLAIN, caps=(Cap(trainers=frozenset({2}), n_max=3), Cap(trainers=frozenset({1, 2}), n_max=7))
)


def refuse(name: str, model: object, limits: object) -> SolverAnswer:
    raise SolverError("the licence ran out")


@pytest.mark.parametrize(
    ("allocator", "problem", "fallback"),
    [
        ("milp", PLAIN, "the licence ran out"),
        ("milp", OVERLAPPING, "the licence ran out"),
        ("auto", OVERLAPPING, "the licence ran out"),
        ("auto", PLAIN, ""),
        ("knapsack", OVERLAPPING, ""),
    ],
)
def test_a_plan_says_why_the_milp_did_not_make_it(
    monkeypatch: pytest.MonkeyPatch, allocator: str, problem: Problem, fallback: str
) -> None:
    monkeypatch.setattr(milp, "solve", refuse)
    plan = decide(problem, EngineSettings(allocator=allocator))
    assert (plan.allocator, plan.fallback) == ("knapsack", fallback)
    assert sum(plan.counts.values()) == (8 if problem is PLAIN else 7)


def test_the_milp_that_is_too_large_for_auto_is_no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrainer.allocate.LARGEST", 0)
    plan = decide(OVERLAPPING, EngineSettings(allocator="auto"))
    assert "too large for the MILP" in plan.note
    assert plan.fallback == ""


@pytest.mark.parametrize("name", [name for name in solvers.SOLVERS if solvers.available(name)])
def test_a_solver_that_works_passes_its_trial(name: str) -> None:
    solvers.require(name)
    assert check_solver(EngineSettings(allocator="milp", solver=name)) == ""


def test_a_solver_is_tried_and_not_only_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def expired(model: object, limits: object) -> SolverAnswer:
        raise RuntimeError("no licence")

    highs = replace(solvers.SOLVERS["highs"], run=expired)
    monkeypatch.setattr(solvers, "SOLVERS", {"highs": highs})
    for allocator in ("knapsack", "equal"):
        assert check_solver(EngineSettings(allocator=allocator)) == ""
    said = "solver highs does not work here: no licence; pip install highspy scipy, no other solver works"
    assert said in check_solver(EngineSettings(allocator="auto"))
    with pytest.raises(SolverError, match=said):
        check_solver(EngineSettings(allocator="milp"))


def test_a_solver_that_answers_nonsense_fails_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (SolverAnswer(False, False, None), SolverAnswer(True, True, 1.0)):
        highs = replace(solvers.SOLVERS["highs"], run=lambda model, limits, answer=answer: answer)
        monkeypatch.setattr(solvers, "SOLVERS", {"highs": highs})
        with pytest.raises(SolverError, match="cannot solve a model of one variable"):
            solvers.require("highs")


SCRIPT = """
import json, sys
sys.modules[sys.argv[1]] = None
from bftrainer.allocate import check_solver, decide
from bftrainer.errors import SolverError
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Candidate, Problem
candidate = Candidate(trainer=1, n_min=1, n_max=4, current=0, curve=((4, 4.0),))
plan = decide(Problem(pool_size=2, t_fwd_s=9.0, candidates=(candidate,)), EngineSettings(allocator="milp"))
try:
    refused = check_solver(EngineSettings(allocator="milp"))
except SolverError as error:
    refused = str(error)
warned = check_solver(EngineSettings(allocator="auto"))
print(json.dumps([plan.allocator, plan.fallback, refused, warned]))
"""


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        ("scipy", "pip install highspy scipy"),
        ("highspy", "pip install highspy scipy"),
        ("pyomo", "pip install pyomo"),
    ],
)
def test_a_library_that_is_missing_is_told_with_the_remedy(module: str, remedy: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, module], capture_output=True, text=True, check=True, timeout=120
    )
    allocator, *told = json.loads(done.stdout)
    assert allocator == "knapsack"
    for text in told:
        assert module in text
        assert remedy in text


def test_the_trial_says_which_solvers_work_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def works(model: Any, limits: object) -> SolverAnswer:
        model.x.value = 1
        return SolverAnswer(optimal=True, found=True, bound=1.0)

    one = solvers.SOLVERS["highs"]
    known = {
        "highs": replace(one, available=lambda: False),
        "cbc": replace(one, run=works),
        "scip": replace(one, available=lambda: False),
    }
    monkeypatch.setattr(solvers, "SOLVERS", known)
    with pytest.raises(SolverError, match=r"solver highs is not here; .*, or take one of: cbc \(bft"):
        solvers.require("highs")


def test_the_solver_loads_no_more_of_scipy_than_matrices() -> None:
    script = (
        "import sys\nfrom bftrainer.allocate import check_solver\n"
        "from bftrainer.model.policy import EngineSettings\n"
        "assert not check_solver(EngineSettings(allocator='auto'))\n"
        "found = [type(finder).__module__ for finder in sys.meta_path]\n"
        "assert any(name.startswith('pyomo.') for name in found), 'Pyomo finds its own imports'\n"
        "assert 'scipy.sparse' in sys.modules and 'scipy.stats' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
