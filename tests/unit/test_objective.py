"""v(N), the worth of a trainer on N nodes, against its formula written out for one N."""

from __future__ import annotations

import random

import oracle
import pytest

from bftrainer import curve, objective
from bftrainer.model import Candidate, Cost, Problem, RescaleCosts


def v(candidate: Candidate, t_fwd_s: float, n: int) -> float:
    """The formula of `objective`, one trainer, one size."""
    if 0 < n < candidate.n_min:
        return float("-inf")
    rate = oracle.interpolate(candidate.curve, n)
    able = candidate.current >= candidate.n_min
    now = oracle.interpolate(candidate.curve, candidate.current) if able else 0.0
    worth = t_fwd_s * rate
    if n > candidate.current:
        worth -= candidate.costs.up.stall_s * now + candidate.costs.up.init_s * max(0.0, rate - now)
    if n < candidate.current:
        worth -= candidate.costs.down.stall_s * now
    return candidate.weight * worth


@pytest.mark.parametrize("seed", range(50))
def test_values_follow_the_formula(seed: int) -> None:
    problem = oracle.random_problem(random.Random(f"objective/{seed}"), trainers=5, pool=20)
    for candidate in problem.candidates:
        values = objective.values(candidate, problem)
        sizes = range(min(candidate.n_max, problem.pool_size) + 1)
        assert list(values) == pytest.approx(
            [v(candidate, problem.t_fwd_s, n) for n in sizes], rel=1e-12, abs=1e-9
        )


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_worth_the_sum_of_its_trainers(seed: int) -> None:
    rng = random.Random(f"total/{seed}")
    problem = oracle.random_problem(rng, trainers=5, pool=20)
    counts = {
        c.trainer: rng.choice([0, *range(c.n_min, min(c.n_max, problem.pool_size) + 1)])
        for c in problem.candidates
    }
    expected = sum(v(c, problem.t_fwd_s, counts[c.trainer]) for c in problem.candidates)
    assert objective.total(problem, counts) == pytest.approx(expected, rel=1e-12, abs=1e-9)


def test_values_by_hand() -> None:
    """Linear, 10 samples/s a node, holds 2: down costs 3 s * 20/s, up 2 s * 20/s and 5 s of what is added."""
    candidate = Candidate(
        trainer=1,
        n_min=2,
        n_max=4,
        current=2,
        curve=((4, 40.0),),
        weight=2.0,
        costs=RescaleCosts(up=Cost(stall_s=2.0, init_s=5.0), down=Cost(stall_s=3.0)),
    )
    values = objective.values(candidate, Problem(pool_size=9, t_fwd_s=100.0, candidates=(candidate,)))
    assert list(values) == [-120.0, float("-inf"), 4000.0, 2 * (3000 - 40 - 50), 2 * (4000 - 40 - 100)]


def test_missing_trainers_count_as_without_nodes() -> None:
    candidate = Candidate(
        trainer=1, n_min=1, n_max=4, current=2, curve=((4, 40.0),), costs=RescaleCosts(down=Cost(stall_s=3.0))
    )
    assert objective.total(Problem(pool_size=4, t_fwd_s=1.0, candidates=(candidate,)), {}) == -60.0


def test_values_are_read_only() -> None:
    candidate = Candidate(trainer=1, n_min=1, n_max=2, current=0, curve=((1, 1.0),))
    with pytest.raises(ValueError, match="read-only"):
        objective.values(candidate, Problem(pool_size=2, t_fwd_s=1.0, candidates=(candidate,)))[0] = 1.0


def test_throughput_counts_samples_and_efficiency_counts_them_in_units_of_one_node() -> None:
    points = ((1, 50.0), (4, 150.0))
    assert objective.metric("throughput", points) == points
    assert objective.metric("efficiency", points) == ((1, 1.0), (4, 3.0))
    late = ((4, 100.0), (8, 150.0))  # one node: a quarter of four
    assert curve.rate(objective.metric("efficiency", late), 1) == pytest.approx(1.0)
    assert objective.metric("efficiency", late) == ((4, 4.0), (8, 6.0))
