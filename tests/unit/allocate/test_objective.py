"""v(N), the worth of a trainer on N nodes, against its formula written out for one N."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.allocate import metric, value
from bftrainer.model.problem import Candidate, NodeGroup, Problem
from bftrainer.model.trainer import Cost, Points, RescaleCosts
from bftrainer.performance import curve
from tests.support import oracle


def v(candidate: Candidate, t_fwd_s: float, n: int) -> float:
    """The formula of `objective`, one trainer, one size."""
    if n > 0 and n not in oracle.sizes_of(candidate):
        return float("-inf")
    rate = oracle.interpolate(candidate.curve, n)
    able = oracle.trains(candidate)
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
        values = value.values(candidate, problem)
        sizes = range(min(candidate.n_max, problem.pool_size) + 1)
        assert list(values) == pytest.approx(
            [v(candidate, problem.t_fwd_s, n) for n in sizes], rel=1e-12, abs=1e-9
        )


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_worth_the_sum_of_its_trainers(seed: int) -> None:
    rng = random.Random(f"total/{seed}")
    problem = oracle.random_problem(rng, trainers=5, pool=20)
    counts = {
        c.trainer: rng.choice([0, *(n for n in oracle.sizes_of(c) if n <= problem.pool_size)])
        for c in problem.candidates
    }
    expected = sum(v(c, problem.t_fwd_s, counts[c.trainer]) for c in problem.candidates)
    assert value.total(problem, counts) == pytest.approx(expected, rel=1e-12, abs=1e-9)


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
    values = value.values(candidate, Problem(pool_size=9, t_fwd_s=100.0, candidates=(candidate,)))
    assert list(values) == [-120.0, float("-inf"), 4000.0, 2 * (3000 - 40 - 50), 2 * (4000 - 40 - 100)]


def test_missing_trainers_count_as_without_nodes() -> None:
    candidate = Candidate(
        trainer=1, n_min=1, n_max=4, current=2, curve=((4, 40.0),), costs=RescaleCosts(down=Cost(stall_s=3.0))
    )
    assert value.total(Problem(pool_size=4, t_fwd_s=1.0, candidates=(candidate,)), {}) == -60.0


def test_values_are_read_only() -> None:
    candidate = Candidate(trainer=1, n_min=1, n_max=2, current=0, curve=((1, 1.0),))
    with pytest.raises(ValueError, match="read-only"):
        value.values(candidate, Problem(pool_size=2, t_fwd_s=1.0, candidates=(candidate,)))[0] = 1.0


def test_throughput_counts_samples_and_efficiency_counts_them_in_units_of_one_node() -> None:
    points = ((1, 50.0), (4, 150.0))
    assert metric.metric("throughput", points) == points
    assert metric.metric("efficiency", points) == ((1, 1.0), (4, 3.0))
    late = ((4, 100.0), (8, 150.0))  # one node: a quarter of four
    assert curve.rate(metric.metric("efficiency", late), 1) == pytest.approx(1.0)
    assert metric.metric("efficiency", late) == ((4, 4.0), (8, 6.0))


# --- mixtures ------------------------------------------------------------------------------------

FAST = ((1, 50.0), (4, 150.0))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("throughput", {"throughput": 1.0}),
        (" 2 * efficiency ", {"efficiency": 2.0}),
        ("0.7*efficiency+0.3*priority", {"efficiency": 0.7, "priority": 0.3}),
        ("efficiency + 0.5*throughput + efficiency", {"efficiency": 2.0, "throughput": 0.5}),
        ("1e-3*throughput", {"throughput": 0.001}),
    ],
)
def test_an_objective_is_a_name_or_a_mixture(text: str, parts: dict[str, float]) -> None:
    assert dict(metric.parse(text)) == parts


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "''"),
        ("speed", "'speed'"),
        ("efficiency +", "''"),
        ("efficiency - priority", "'efficiency - priority'"),
        ("0*efficiency", "'0*efficiency'"),
        ("-1*efficiency", "'-1*efficiency'"),
        ("nan*efficiency", "'nan*efficiency'"),
        ("inf*efficiency", "'inf*efficiency'"),
        ("*efficiency", "'*efficiency'"),
        ("efficiency*2", "'efficiency*2'"),
        ("2*3*efficiency", "'2*3*efficiency'"),
        ("throughput + some*priority", "'some*priority'"),
    ],
)
def test_what_is_no_objective_is_named_with_the_valid_ones(text: str, named: str) -> None:
    with pytest.raises(metric.ObjectiveError) as error:
        metric.parse(text)
    assert str(error.value).startswith(
        f"{named} is no objective. Give one of throughput, efficiency, priority"
    )


def test_a_mixture_is_the_weighted_sum_of_its_parts() -> None:
    """One node is 50/s: 1 in efficiency, 3 with the trainer's priority."""
    mixed = metric.metric("0.5*throughput + 2*efficiency + priority", FAST, 3.0)
    assert [n for n, _ in mixed] == [1, 4]
    assert [worth for _, worth in mixed] == pytest.approx([25.0 + 2.0 + 3.0, 75.0 + 6.0 + 9.0])
    assert metric.metric("priority", FAST, 3.0) == ((1, 3.0), (4, 9.0))
    assert metric.metric("efficiency", FAST, 3.0) == metric.metric("efficiency", FAST)


def test_an_objective_may_bend_the_table_of_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the square root of the speed-up: 1 on one node, and the root of 3 on four."""

    def fair(speeds: Points, unit: Points, priority: float) -> Points:
        return tuple((n, (rate / curve.rate(unit, 1)) ** 0.5) for n, rate in speeds)

    monkeypatch.setattr(metric, "OBJECTIVES", {**metric.OBJECTIVES, "fair": fair})
    metric.parse.cache_clear()
    metric.metric.cache_clear()
    assert metric.metric("fair", FAST) == ((1, 1.0), (4, 3.0**0.5))
    assert metric.metric("2*fair + efficiency", FAST) == ((1, 3.0), (4, 2 * 3.0**0.5 + 3.0))
    metric.parse.cache_clear()
    metric.metric.cache_clear()


def test_curves_on_several_classes_count_in_one_unit() -> None:
    """Twice as fast there is twice as much worth, under every objective."""
    twice = tuple((n, 2 * rate) for n, rate in FAST)
    for text in ("throughput", "efficiency", "priority", "throughput + 100*priority"):
        usual = metric.metric(text, FAST, 3.0)
        found = metric.metric(text, twice, 3.0, FAST)
        assert [worth for _, worth in found] == pytest.approx([2 * worth for _, worth in usual])
    assert metric.metric("efficiency", (), 1.0, FAST) == ()  # a class that it cannot use


# --- nodes that leave ----------------------------------------------------------------------------


@pytest.mark.parametrize("remaining_s", [-5.0, 0.0, 1e-9, 30.0, 60.0, 200.0, float("inf")])
def test_time_is_cut_where_a_group_is_expected_to_leave(remaining_s: float) -> None:
    """10/s a node for two that stay and one that leaves, T_fwd 60 s; starting costs 5 s of every node."""
    candidate = Candidate(
        trainer=1,
        n_min=2,
        n_max=3,
        current=0,
        curve=((3, 30.0),),
        costs=RescaleCosts(up=Cost(init_s=5.0)),
    )
    problem = Problem(
        pool_size=3,
        t_fwd_s=60.0,
        candidates=(candidate,),
        groups=(NodeGroup(size=2), NodeGroup(size=1, remaining_s=remaining_s)),
    )
    there_s = min(60.0, max(0.0, remaining_s))
    assert sum(duration for _, duration in value.slices(problem)) == 60.0
    assert value.worth(candidate, problem, (2, 1)) == pytest.approx(20 * 60 + 10 * there_s - 150)
    assert value.worth(candidate, problem, (2, 0)) == pytest.approx(20 * 60 - 100)
    assert value.worth(candidate, problem, (1, 1)) == pytest.approx(20 * there_s - 100)  # then below 2
    assert value.worth(candidate, problem, (1, 1)) == pytest.approx(
        oracle.spelt_out(problem, candidate, (1, 1))
    )
    assert value.worth(candidate, problem, (1, 0)) == float("-inf")


@pytest.mark.parametrize("objective", ["efficiency", "priority", "efficiency+0.5*priority"])
def test_where_a_trainer_is_compared_with_itself_a_lie_gains_little(objective: str) -> None:
    """It may report any speed; it counts as twice as fast on n nodes as n times on one, at most."""
    liar = metric.metric(objective, ((1, 10.0), (2, 30.0), (4, 1e12)))
    honest = metric.metric(objective, ((1, 10.0), (4, 40.0)))
    assert dict(liar)[2] == pytest.approx(3.0 * dict(liar)[1])
    assert dict(liar)[4] == pytest.approx(2.0 * dict(honest)[4])
    assert metric.metric("throughput", ((1, 10.0), (4, 1e12))) == ((1, 10.0), (4, 1e12))
    mixed = metric.metric(f"throughput+{objective}", ((1, 10.0), (4, 1e12)))
    assert dict(mixed)[4] == pytest.approx(1e12), "only its throughput counts what it says"


@given(
    st.lists(st.floats(0.01, 50), min_size=3, max_size=3),
    st.lists(st.floats(0.01, 50), min_size=3, max_size=3),
    st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]),
)
def test_sums_of_powers_are_ordered_as_their_p_norms(
    one: list[float], other: list[float], power: float
) -> None:
    def norm(speedups: list[float]) -> float:
        shown = [s if power > 0 else s + metric.NO_SPEED for s in speedups]
        if power == 0:
            return float(np.exp(np.mean(np.log(shown))))
        return float(np.mean(np.power(shown, power)) ** (1 / power))

    def total(speedups: list[float]) -> float:
        return sum(dict(metric.powered(((1, s),), power))[1] for s in speedups)

    if abs(norm(one) / norm(other) - 1) > 1e-6:
        assert (total(one) > total(other)) is (norm(one) > norm(other))
    assert all(metric.powered(((1, s),), power)[0][1] > 0 for s in one)


def test_goodput_counts_progress_and_all_else_counts_speeds() -> None:
    points, progress = ((1, 10.0), (2, 20.0)), ((1, 5.0), (2, 7.0))
    assert dict(metric.metric("goodput", points, progress=progress)) == pytest.approx({1: 1.0, 2: 1.4})
    assert metric.metric("goodput", points) == metric.metric("efficiency", points)
    assert dict(metric.metric("efficiency", points, progress=progress)) == pytest.approx({1: 1.0, 2: 2.0})
    assert dict(metric.metric("goodput", points, progress=progress, power=2.0))[2] == pytest.approx(1.96)
    mixed = metric.metric("goodput + 2*efficiency", points, progress=progress, power=2.0)
    assert dict(mixed)[2] == pytest.approx(1.96 + 4)
