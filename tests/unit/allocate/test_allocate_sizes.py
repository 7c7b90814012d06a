"""Where trainers allow some sizes only: what holds beside the exactness that test_allocate.py shows."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from bftrainer.allocate import equal, milp, relax, value
from bftrainer.allocate.solvers import SolverAnswer
from bftrainer.model.problem import Candidate, PlanStatus, Problem
from bftrainer.model.sizes import AllowedSizes
from tests.support import oracle

POWERS = AllowedSizes(listed=(1, 2, 4, 8))


@pytest.mark.parametrize("seed", range(4))
def test_every_way_to_spread_nodes_is_worth_what_the_formula_says(seed: int) -> None:
    rng = random.Random(f"worth/{seed}")
    odd = 0
    for _ in range(200):
        problem = oracle.random_groups(rng, sizes=True)
        for c in problem.candidates:
            odd += c.current > c.n_min and not c.trains
            for own in product(*(range(g.size + 1) for g in problem.parts)):
                if oracle.allowed_spread(problem, c, own):
                    found = value.worth(c, problem, own)
                    assert oracle.same(found, oracle.spelt_out(problem, c, own)), (c, own, problem)
    assert odd > 10


@pytest.mark.parametrize("seed", range(4))
def test_the_relaxations_plan_is_feasible_where_nodes_differ(seed: int) -> None:
    rng = random.Random(f"feasible/{seed}")
    for i in range(150):
        problem = oracle.random_groups(rng, caps=i % 2 == 0, sizes=True)
        plan = relax.allocate(problem, relax.EXACT)
        assert oracle.misspread(problem, plan.spread) == [], problem


@pytest.mark.parametrize("seed", range(4))
def test_equal_shares_within_caps_are_allowed_sizes(seed: int) -> None:
    rng = random.Random(f"capped shares/{seed}")
    for _ in range(100):
        problem = oracle.random_problem(rng, trainers=5, pool=20, caps=True)
        assert oracle.infeasibilities(problem, equal.allocate(problem).counts) == []


def test_out_of_time_the_current_map_is_kept_as_far_as_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = SolverAnswer(optimal=False, found=False, bound=1e9)
    monkeypatch.setattr(milp, "solve", lambda name, model, limits: stopped)
    seven = Candidate(trainer=1, n_min=1, n_max=8, current=7, curve=((8, 8.0),), sizes=POWERS)
    few = replace(seven, trainer=2, n_min=4, current=3)
    problem = Problem(pool_size=10, t_fwd_s=120.0, candidates=(seven, few))
    poor = relax.plan_of(problem, {1: (0,), 2: (0,)}, 1e9, allocator="knapsack", gap=0.0)
    plan = milp.allocate(problem, time_limit_s=1.0, start=poor)
    assert (dict(plan.counts), plan.status) == ({1: 4, 2: 0}, PlanStatus.FALLBACK)


def test_a_solution_of_a_size_that_is_not_allowed_is_refused() -> None:
    trainer = Candidate(trainer=1, n_min=1, n_max=8, current=0, curve=((8, 8.0),), sizes=POWERS)
    problem = Problem(pool_size=8, t_fwd_s=120.0, candidates=(trainer,))
    model = milp.Model(problem, sos2=False)
    model.set({1: (4,)})
    assert model.spread() == {1: (4,)}
    model.pyomo.n[1, "", 0].value = 3
    with pytest.raises(ArithmeticError, match=r"gave 3 nodes to a trainer of 1\.\.8"):
        model.spread()
