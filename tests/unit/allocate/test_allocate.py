"""The allocators against each other, against enumeration and against the published model."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from bftrainer.allocate import ALLOCATORS, equal, knapsack, milp, relax, solvers, value
from bftrainer.allocate.piecewise import Encoding
from bftrainer.allocate.solvers import SolverAnswer
from bftrainer.errors import SolverError
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Candidate, Cap, NodeGroup, Plan, PlanStatus, Problem
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Cost, RescaleCosts
from tests.support import oracle

CHUNKS, PER_CHUNK = 20, 105


def check(plan: Plan, problem: Problem) -> None:
    """What every plan must be: feasible, and worth what it says."""
    assert oracle.infeasibilities(problem, plan.counts) == []
    assert oracle.same(plan.objective, value.total(problem, plan.counts))


def check_proven(plan: Plan, problem: Problem) -> None:
    check(plan, problem)
    assert plan.status is PlanStatus.OPTIMAL
    assert plan.proven
    assert plan.bound >= plan.objective
    assert oracle.same(plan.bound, plan.objective)


def linear_trainer(id_: int, rate: float = 1.0, **changes: object) -> Candidate:
    base = Candidate(trainer=id_, n_min=1, n_max=8, current=0, curve=((8, 8 * rate),))
    return replace(base, **changes)  # type: ignore[arg-type]


def kept(problem: Problem) -> float:
    """What the current map is worth, without those that cannot run on what they have left."""
    return value.total(problem, {c.trainer: oracle.left_with(c, c.current) for c in problem.candidates})


# --- exactness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_both_exact_allocators_find_the_best_of_all_counts(seed: int) -> None:
    rng = random.Random(f"enumeration/{seed}")
    for _ in range(40):
        problem = oracle.random_problem(rng, trainers=4, pool=7)
        best = oracle.brute_force(problem)
        for plan in (knapsack.allocate(problem), milp.allocate(problem, time_limit_s=60)):
            check_proven(plan, problem)
            assert oracle.same(plan.objective, best), (plan, best, problem)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_knapsack_and_milp_agree(chunk: int) -> None:
    """CHUNKS * PER_CHUNK random problems: two independent ways to the same optimum."""
    rng = random.Random(f"agreement/{chunk}")
    for _ in range(PER_CHUNK):
        problem = oracle.random_problem(rng)
        exact, solved = knapsack.allocate(problem), milp.allocate(problem, time_limit_s=60)
        check_proven(exact, problem)
        check_proven(solved, problem)
        assert oracle.same(exact.objective, solved.objective), (exact, solved, problem)


def test_the_random_problems_cover_the_awkward_cases() -> None:
    problems = [oracle.random_problem(random.Random(f"agreement/{chunk}")) for chunk in range(CHUNKS)]
    rng = random.Random("agreement/0")
    problems += [oracle.random_problem(rng) for _ in range(500)]
    candidates = [c for p in problems for c in p.candidates]

    def slopes(c: Candidate) -> list[float]:
        return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise([(0, 0.0), *c.curve])]

    counted = {
        "empty pool": sum(p.pool_size == 0 for p in problems),
        "one trainer": sum(len(p.candidates) == 1 for p in problems),
        "more trainers than nodes": sum(len(p.candidates) > p.pool_size for p in problems),
        "everything is held": sum(0 < p.pool_size == sum(c.current for c in p.candidates) for p in problems),
        "n_min > 1": sum(c.n_min > 1 for c in candidates),
        "below its minimum": sum(0 < c.current < c.n_min for c in candidates),
        "a list of sizes": sum(bool(c.sizes.listed) for c in candidates),
        "multiples": sum(c.sizes.multiple_of > 1 for c in candidates),
        "holds a size that is not allowed": sum(c.current > c.n_min and not c.trains for c in candidates),
        "no size": sum(not oracle.sizes_of(c) for c in candidates),
        "init": sum(c.costs.up.init_s > 0 for c in candidates),
        "weight": sum(c.weight != 1 for c in candidates),
        "not monotone": sum(min(slopes(c)) < 0 for c in candidates),
        "not concave": sum(any(b > a * (1 + 1e-9) for a, b in pairwise(slopes(c))) for c in candidates),
    }
    assert min(counted.values()) >= 20, counted


@pytest.mark.parametrize("seed", range(4))
def test_caps_are_kept_and_the_plan_is_still_optimal(seed: int) -> None:
    rng = random.Random(f"caps/{seed}")
    binding = disjoint = 0
    for _ in range(60):
        problem = oracle.random_problem(rng, trainers=4, pool=7, caps=True)
        best = oracle.brute_force(problem)
        plans = [milp.allocate(problem, time_limit_s=60)]
        if knapsack.exact_for(problem):
            plans.append(knapsack.allocate(problem))
            disjoint += 1
        for plan in plans:
            check_proven(plan, problem)
            assert oracle.same(plan.objective, best), (plan, problem)
        binding += best < knapsack.allocate(replace(problem, caps=())).objective - 1e-6
    assert min(binding, disjoint) >= 10  # the caps are not just decoration


SOLVERS = [name for name in solvers.SOLVERS if solvers.available(name)]


def test_a_solver_with_special_ordered_sets_is_tested_here() -> None:
    assert any(solvers.SOLVERS[name].sos2 for name in SOLVERS), "install pyscipopt"


@pytest.mark.parametrize("encoding", [None, *Encoding])
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_and_encoding_finds_the_best_of_all_plans(
    solver: str, encoding: Encoding | None
) -> None:
    """Node classes, departure groups, expected remaining times and caps, against enumeration."""
    if encoding is Encoding.SOS2 and not solvers.SOLVERS[solver].sos2:
        pytest.skip(f"{solver} takes no special ordered sets")
    for problem, best in grouped_problems():
        plan = milp.allocate(problem, time_limit_s=60, solver=solver, encoding=encoding)
        assert oracle.misspread(problem, plan.spread) == []
        assert plan.proven
        assert oracle.same(plan.objective, best), (plan, best, problem)


@cache
def grouped_problems() -> list[tuple[Problem, float]]:
    """Problems whose nodes differ, with the best objective."""
    rng = random.Random("groups")
    found = []
    for i in range(60):
        problem = oracle.random_groups(rng, caps=i % 3 == 0, sizes=i % 2 == 0)
        best, into = oracle.best_spread(problem)
        for c in problem.candidates:
            own = into[c.trainer]
            assert oracle.same(value.worth(c, problem, own), oracle.spelt_out(problem, c, own))
        found.append((problem, best))
    return found


def test_the_encoding_follows_the_solver_and_the_curve() -> None:
    """Concave values need no adjacency; others get special ordered sets where the solver has them."""
    stairs = ((1, 1.0), (2, 1.1), (3, 3.0), (4, 3.1))
    concave = linear_trainer(1, curve=((1, 2.0), (4, 5.0), (8, 6.0)))
    problem = Problem(
        pool_size=8, t_fwd_s=120.0, candidates=(concave, linear_trainer(2, n_max=4, curve=stairs))
    )
    for sos2, expected in ((True, Encoding.SOS2), (False, Encoding.BINARIES)):
        model = milp.Model(problem, sos2=sos2)
        assert [model.encodings[j, "", 0] for j in (1, 2)] == [Encoding.CONCAVE, expected]
        assert hasattr(model.pyomo, "neighbours") is sos2


def test_the_relaxation_bounds_every_plan_and_its_own_plan_is_feasible() -> None:
    tight = 0
    for problem, best in grouped_problems():
        plan = relax.allocate(problem, relax.EXACT)
        assert oracle.misspread(problem, plan.spread) == []
        assert plan.objective <= best + oracle.TOLERANCE * max(1.0, abs(best))
        assert plan.bound >= best - oracle.TOLERANCE * max(1.0, abs(best)), (plan, best, problem)
        assert not plan.proven or oracle.same(plan.objective, best)
        tight += plan.proven
    assert tight > 20  # it is of use


@pytest.mark.parametrize("chunk", range(20))
def test_looking_only_where_it_matters_finds_what_the_plain_programme_finds(chunk: int) -> None:
    rng = random.Random(f"plain/{chunk}")
    for _ in range(200):
        problem = oracle.random_problem(rng, trainers=12, pool=40)
        rows = value.tables(problem.candidates, problem.pool_size, problem.t_fwd_s)
        best, choices = knapsack.profile(rows, problem.pool_size)
        plain = knapsack.trace(choices, problem.pool_size)
        assert oracle.same(rows[range(len(rows)), plain].sum(), best[-1])
        plan = knapsack.allocate(problem)
        check_proven(plan, problem)
        assert oracle.same(plan.objective, best[-1]), (plan, best[-1], problem)


def test_interchangeable_trainers_are_served_in_order() -> None:
    trainers = tuple(linear_trainer(j, n_max=4) for j in range(1, 6))
    plan = knapsack.allocate(Problem(pool_size=10, t_fwd_s=120.0, candidates=trainers))
    assert list(plan.counts.values()) == [4, 4, 2, 0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_counts_are_enough_the_published_model_has_the_same_optimum(seed: int) -> None:
    rng = random.Random(f"published/{seed}")
    solved = 0
    while solved < 12:
        problem = oracle.random_problem(rng, trainers=4, pool=8, init=False)
        if problem.pool_size == 0:
            continue
        solved += 1
        held = oracle.contiguous_map(problem)
        published, counted = oracle.node_level(problem, held), knapsack.allocate(problem)
        assert oracle.same(published.objective, counted.objective), (published, counted, problem)
        sizes = {j: len(nodes) for j, nodes in published.allocation.items()}
        assert oracle.infeasibilities(problem, sizes) == []
        for j, nodes in published.allocation.items():
            assert nodes <= held[j] or held[j] <= nodes, f"trainer {j} migrates"


def test_rescale_costs_hold_a_trainer_back() -> None:
    """By hand: 4 more samples/s for 10 s against 18 s of 4 samples/s."""
    trainer = linear_trainer(1, current=4, costs=RescaleCosts(up=Cost(stall_s=18.0)))
    problem = Problem(pool_size=8, t_fwd_s=10.0, candidates=(trainer,))
    for allocate in (ALLOCATORS["knapsack"], ALLOCATORS["milp"]):
        plan = allocate(problem, EngineSettings())
        assert dict(plan.counts) == {1: 4}
        assert plan.objective == pytest.approx(40.0)
        plan = allocate(replace(problem, t_fwd_s=20.0), EngineSettings())
        assert dict(plan.counts) == {1: 8}
        assert plan.objective == pytest.approx(160.0 - 72.0)


def test_no_candidates_is_a_problem_too() -> None:
    problem = Problem(pool_size=3, t_fwd_s=120.0, candidates=())
    for name, allocate in ALLOCATORS.items():
        plan = allocate(problem, EngineSettings())
        assert (name, dict(plan.counts), plan.objective) == (name, {}, 0.0)


# --- which method decides, and what the plan says of it ------------------------------------------


def test_auto_takes_the_exact_method_where_it_is_exact_and_the_milp_elsewhere() -> None:
    free = Problem(pool_size=8, t_fwd_s=120.0, candidates=(linear_trainer(1), linear_trainer(2, 2.0)))
    capped = replace(free, caps=(Cap(trainers=frozenset({2}), n_max=3),))
    both = Cap(trainers=frozenset({1, 2}), n_max=7)
    tangled = replace(free, caps=(*capped.caps, both))
    for problem, allocator, counts in (
        (free, "knapsack", {1: 0, 2: 8}),
        (capped, "knapsack", {1: 5, 2: 3}),
        (tangled, "milp", {1: 4, 2: 3}),
    ):
        plan = ALLOCATORS["auto"](problem, EngineSettings())
        assert plan.allocator == allocator
        assert dict(plan.counts) == counts
        assert plan.proven
        assert plan.gap == pytest.approx(0.0, abs=1e-4)


def test_auto_asks_no_solver_where_the_relaxation_leaves_no_gap() -> None:
    group = NodeGroup(size=4, departures=0.5)
    slow = RescaleCosts(down=Cost(stall_s=10.0))
    candidates = (linear_trainer(1, n_max=4, costs=slow), linear_trainer(2, n_max=4, costs=slow))
    problem = Problem(pool_size=8, t_fwd_s=120.0, candidates=candidates, groups=(group, group))
    plan = ALLOCATORS["auto"](problem, EngineSettings())
    assert (plan.allocator, plan.status) == ("knapsack", PlanStatus.OPTIMAL)
    assert sorted(plan.spread.values()) == [(0, 4), (4, 0)]


def test_a_solver_that_fails_leaves_the_exact_methods_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, model: object, limits: object) -> SolverAnswer:
        raise SolverError("the licence ran out")

    monkeypatch.setattr(milp, "solve", fail)
    problem = replace(
        Problem(pool_size=8, t_fwd_s=120.0, candidates=(linear_trainer(1), linear_trainer(2, 2.0))),
        caps=(Cap(trainers=frozenset({2}), n_max=3), Cap(trainers=frozenset({1, 2}), n_max=7)),
    )
    plan = ALLOCATORS["auto"](problem, EngineSettings())
    assert (plan.allocator, plan.status, plan.fallback) == (
        "knapsack",
        PlanStatus.FEASIBLE,
        "the licence ran out",
    )
    assert oracle.infeasibilities(problem, plan.counts) == []


def test_what_is_too_large_for_the_milp_is_not_given_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = next(p for p, best in grouped_problems() if not relax.allocate(p, 1e-3).proven)
    monkeypatch.setattr("bftrainer.allocate.LARGEST", 0)
    plan = ALLOCATORS["auto"](problem, EngineSettings())
    assert (plan.allocator, plan.status) == ("knapsack", PlanStatus.FEASIBLE)
    assert "too large for the MILP" in plan.note


def test_a_solver_that_is_missing_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {**solvers.SOLVERS, "scip": replace(solvers.SOLVERS["scip"], available=lambda: False)}
    monkeypatch.setattr(solvers, "SOLVERS", gone)
    with pytest.raises(
        SolverError, match="solver scip is not here; pip install pyscipopt, or take one of: highs"
    ):
        solvers.require("scip")


def test_equal_shares_keep_caps_and_know_one_class() -> None:
    problem = Problem(
        pool_size=4,
        t_fwd_s=120.0,
        candidates=(linear_trainer(1), linear_trainer(2)),
        caps=(Cap(trainers=frozenset({1, 2}), n_max=3),),
    )
    assert dict(equal.allocate(problem).counts) == {1: 2, 2: 1}
    classes = (NodeGroup(size=2, node_class="a"), NodeGroup(size=2, node_class="b"))
    with pytest.raises(ValueError, match="one class of nodes: use the allocator auto"):
        equal.allocate(replace(problem, groups=classes))


def test_the_exact_method_refuses_what_it_does_not_cover() -> None:
    problem = Problem(pool_size=4, t_fwd_s=120.0, candidates=(linear_trainer(1),))
    cap = Cap(trainers=frozenset({1}), n_max=1)
    for other in (replace(problem, caps=(cap, cap)), replace(problem, groups=(NodeGroup(size=4),))):
        assert not knapsack.exact_for(other)
        with pytest.raises(ValueError, match="use the allocator milp or auto"):
            knapsack.allocate(other)


def test_same_problem_same_plan() -> None:
    for seed in range(30):
        problem = oracle.random_problem(random.Random(f"same/{seed}"))
        for name in ("auto", "knapsack", "milp", "equal"):
            first, second = (ALLOCATORS[name](problem, EngineSettings()) for _ in range(2))
            assert first == second


@pytest.mark.parametrize("time_limit_s", [1e-9, 0.01, 0.05])
def test_milp_out_of_time_never_does_worse_than_the_current_map(time_limit_s: float) -> None:
    rng = random.Random("out of time")
    sizes = [(6, 14)] * 10 + [(20, 120)] * 4
    for trainers, pool in sizes:
        problem = oracle.random_problem(rng, trainers=trainers, pool=pool)
        plan = milp.allocate(problem, time_limit_s=time_limit_s)
        check(plan, problem)
        assert plan.status in (PlanStatus.OPTIMAL, PlanStatus.FEASIBLE, PlanStatus.FALLBACK)
        assert plan.proven == (plan.status is PlanStatus.OPTIMAL)
        assert plan.objective >= kept(problem) - oracle.TOLERANCE * max(1.0, abs(kept(problem)))
        best = knapsack.allocate(problem).objective
        assert plan.objective <= best + oracle.TOLERANCE * max(1.0, abs(best))
        assert plan.bound >= best - oracle.TOLERANCE * max(1.0, abs(best)), "the bound is below the optimum"
        if plan.status is PlanStatus.OPTIMAL:
            assert oracle.same(plan.objective, best)


def hard_problem() -> Problem:
    """So large that no solver is through at once; the trainers hold much of it and one is too small."""
    rng = random.Random("hard")
    candidates = []
    for j in range(1, 31):
        curve = tuple((n, 100.0 * n ** rng.uniform(0.6, 1.2)) for n in (1, 2, 5, 9, 17, 33, 64))
        costs = RescaleCosts(up=Cost(stall_s=18.0), down=Cost(stall_s=12.0))
        candidates.append(
            Candidate(
                trainer=j,
                n_min=rng.randint(1, 8),
                n_max=64,
                current=rng.randint(8, 12),
                curve=curve,
                costs=costs,
            )
        )
    candidates[0] = replace(candidates[0], n_min=20, current=8)
    return Problem(pool_size=400, t_fwd_s=120.0, candidates=tuple(candidates))


def hurried(found: bool, bound: float | None) -> Callable[..., SolverAnswer]:
    """A solver that says that it ran out of time with what it was given."""
    return lambda name, model, limits: SolverAnswer(optimal=False, found=found, bound=bound)


def test_milp_out_of_time_takes_the_best_of_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = hard_problem()
    monkeypatch.setattr(milp, "solve", hurried(False, None))
    plan = milp.allocate(problem, time_limit_s=1.0)
    check(plan, problem)
    assert (plan.status, plan.proven) == (PlanStatus.OPTIMAL, True)  # all nodes are alike: nothing is relaxed
    assert plan.note.endswith("stopped before: the relaxed problem's plan")

    poor = {c.trainer: (0,) for c in problem.candidates}
    start = relax.plan_of(problem, poor, float("inf"), allocator="knapsack", gap=0.0)
    monkeypatch.setattr(relax, "allocate", lambda problem, gap: start)
    plan = milp.allocate(problem, time_limit_s=1.0)
    check(plan, problem)
    assert (plan.status, plan.proven) == (PlanStatus.FALLBACK, False)
    assert plan.counts[1] == 0  # it cannot run on the 8 nodes that it has left
    assert all(plan.counts[c.trainer] == c.current for c in problem.candidates[1:])
    assert plan.gap == float("inf")

    better = {c.trainer: (c.current + (c.trainer == 2) if c.trainer > 1 else 0,) for c in problem.candidates}
    best = {t: (n,) for t, n in knapsack.allocate(problem).counts.items()}
    for incumbent in (better, best):
        monkeypatch.setattr(milp.Model, "spread", lambda self, incumbent=incumbent: incumbent)
        monkeypatch.setattr(milp, "solve", hurried(True, 1e9))
        plan = milp.allocate(problem, time_limit_s=1.0)
        check(plan, problem)
        worth = {
            True: value.total(problem, {t: n for t, (n,) in incumbent.items()}),
            False: kept(problem),
        }
        assert plan.objective == pytest.approx(max(worth.values()))
        assert plan.status is (PlanStatus.FEASIBLE if worth[True] > worth[False] else PlanStatus.FALLBACK)
        assert plan.bound == 1e9


@pytest.mark.parametrize("time_limit_s", [1e-9, 0.05])
def test_milp_out_of_time_does_not_keep_a_map_that_breaks_a_cap(time_limit_s: float) -> None:
    every = frozenset(range(1, 31))
    problem = replace(hard_problem(), caps=(Cap(trainers=every, n_max=100),))  # they hold more than that
    check(milp.allocate(problem, time_limit_s=time_limit_s), problem)


# --- equal shares --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_equal_shares_are_equal_within_limits_and_leave_nothing_usable(seed: int) -> None:
    problem = oracle.random_problem(random.Random(f"equal/{seed}"), trainers=8, pool=30, sizes=False)
    plan = equal.allocate(problem)
    check(plan, problem)
    assert plan.status is PlanStatus.HEURISTIC
    assert not plan.proven
    counts = plan.counts
    served = [c for c in problem.candidates if counts[c.trainer]]
    unlimited = [counts[c.trainer] for c in served if c.n_min < counts[c.trainer] < c.n_max]
    assert max(unlimited, default=0) - min(unlimited, default=0) <= 1
    for c in served:  # a trainer below the others is at its maximum, one above them at its minimum
        if counts[c.trainer] < c.n_max:
            assert all(counts[d.trainer] <= max(counts[c.trainer] + 1, d.n_min) for d in served)
    free = problem.pool_size - sum(counts.values())
    if free:
        assert all(counts[c.trainer] == c.n_max for c in served)
        assert all(c.n_min > free for c in problem.candidates if not counts[c.trainer])


@pytest.mark.parametrize("seed", range(100))
def test_equal_shares_keep_to_allowed_sizes_and_leave_nothing_usable(seed: int) -> None:
    problem = oracle.random_problem(random.Random(f"equal sizes/{seed}"), trainers=8, pool=30)
    plan = equal.allocate(problem)
    check(plan, problem)
    free = problem.pool_size - sum(plan.counts.values())
    for c in problem.candidates:
        n = plan.counts[c.trainer]
        larger = [size for size in oracle.sizes_of(c) if size > n]
        assert not larger or larger[0] > n + free, f"trainer {c.trainer} could have had {larger[0]}"


def test_equal_shares_of_sizes_by_hand() -> None:
    powers = AllowedSizes(listed=(1, 2, 4, 8))
    trainers = (linear_trainer(1, sizes=powers), linear_trainer(2, sizes=powers), linear_trainer(3))
    shares = {16: {1: 8, 2: 4, 3: 4}, 9: {1: 4, 2: 2, 3: 3}, 5: {1: 2, 2: 2, 3: 1}, 1: {1: 1, 2: 0, 3: 0}}
    for pool_size, counts in shares.items():
        plan = equal.allocate(Problem(pool_size=pool_size, t_fwd_s=120.0, candidates=trainers))
        assert dict(plan.counts) == counts


def test_equal_shares_by_hand() -> None:
    trainers = (linear_trainer(1), linear_trainer(2, n_max=1), linear_trainer(3, n_min=4), linear_trainer(4))
    shares = {10: {1: 3, 2: 1, 3: 4, 4: 2}, 5: {1: 2, 2: 1, 3: 0, 4: 2}, 1: {1: 1, 2: 0, 3: 0, 4: 0}}
    for pool_size, counts in shares.items():
        plan = equal.allocate(Problem(pool_size=pool_size, t_fwd_s=120.0, candidates=trainers))
        assert dict(plan.counts) == counts
