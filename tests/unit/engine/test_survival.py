"""What is learnt of how long nodes stay, against lifetimes drawn from known distributions."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer.engine import survival
from bftrainer.engine.survival import LONGEST_S, SHORTEST_S, Survival, forward_time, observed, stay
from bftrainer.performance.curve import Floats

HORIZONS = (10.0, 60.0, 300.0, 1200.0)


def learnt(lifetimes: Floats, batch: int = 20) -> Survival:
    """What remains of many departures, reported in the order that they are given in."""
    known = Survival()
    for first in range(0, len(lifetimes), batch):
        known = observed(known, lifetimes[first : first + batch])
    return known


def exponential(mean_s: float, n: int = 4000, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).exponential(mean_s, n)


def mixed(n: int = 6000, seed: int = 2) -> Floats:
    """Most nodes stay for half a minute, some for an hour."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < 0.8, rng.exponential(30.0, n), rng.exponential(3600.0, n))


# --- the probability to stay ---------------------------------------------------------------------


@pytest.mark.parametrize("mean_s", [60.0, 600.0, 5000.0])
@pytest.mark.parametrize("age_s", [0.0, 25.0, 400.0])
def test_without_memory_the_probability_to_stay_is_that_of_a_new_node(mean_s: float, age_s: float) -> None:
    if age_s > 5 * mean_s:
        pytest.skip("too few have become so old to tell")
    known = learnt(exponential(mean_s))
    for horizon in HORIZONS:
        (found,) = stay(known, np.array([age_s]), horizon)
        assert found == pytest.approx(np.exp(-horizon / mean_s), abs=0.05), horizon


@pytest.mark.parametrize("age_s", [0.0, 15.0, 80.0, 640.0])
def test_of_mixed_lifetimes_the_old_are_known_to_stay(age_s: float) -> None:
    known = learnt(mixed())
    truth = mixed(n=200_000, seed=3)
    there = truth[truth > age_s]
    for horizon in HORIZONS:
        (found,) = stay(known, np.array([age_s]), horizon)
        assert found == pytest.approx((there > age_s + horizon).mean(), abs=0.08), horizon


def test_ages_are_answered_one_by_one() -> None:
    known = learnt(mixed())
    together = stay(known, np.array([0.0, 300.0, 5000.0]), 120.0)
    assert together.shape == (3,)
    assert list(together) == sorted(together)
    # (the nodes asked about are themselves observed: alone, each is a little less evidence)
    alone = [stay(known, np.array([age]), 120.0)[0] for age in (0.0, 300.0, 5000.0)]
    assert list(together) == pytest.approx(alone, abs=0.01)


# --- T_fwd ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean_s", [20.0, 60.0, 600.0, 5000.0])
def test_of_exponential_lifetimes_the_forward_time_is_their_mean_up_to_the_longest(mean_s: float) -> None:
    found = forward_time(learnt(exponential(mean_s)), np.zeros(50))
    assert found == pytest.approx(mean_s * -np.expm1(-LONGEST_S / mean_s), rel=0.2)


@pytest.mark.parametrize("ages", [[0.0], [200.0], [0.0, 0.0, 0.0, 1500.0], [5.0, 50.0, 500.0, 5000.0]])
def test_of_mixed_lifetimes_it_is_the_mean_residual_life_at_the_pools_ages(ages: list[float]) -> None:
    truth = mixed(n=400_000, seed=4)
    residual = [np.minimum(truth[truth > age] - age, LONGEST_S).mean() for age in ages]
    assert forward_time(learnt(mixed()), np.array(ages)) == pytest.approx(np.mean(residual), rel=0.15)


def test_it_stays_within_its_limits() -> None:
    assert forward_time(learnt(exponential(0.5)), np.zeros(3)) == SHORTEST_S
    assert forward_time(learnt(exponential(1e6)), np.zeros(3)) == pytest.approx(LONGEST_S, rel=0.01)
    assert forward_time(learnt(exponential(600.0)), np.array([])) == SHORTEST_S  # no node is there


def test_before_anything_has_been_seen_nodes_stay_for_ten_minutes() -> None:
    prior = survival.PRIOR_S
    assert forward_time(Survival(), np.zeros(1)) == pytest.approx(
        prior * -np.expm1(-LONGEST_S / prior), rel=0.02
    )
    assert stay(Survival(), np.zeros(1), prior)[0] == pytest.approx(np.exp(-1.0))


# --- what counts, and for how long ---------------------------------------------------------------


def test_nodes_that_are_still_there_count_for_what_has_been_seen_of_them() -> None:
    """Ten left young; a thousand others have stayed for a day: leaving must not seem the rule."""
    few = observed(Survival(), exponential(30.0, n=10))
    assert stay(few, np.full(1, 0.0), 600.0)[0] < 0.3
    assert stay(few, np.full(1000, 86_400.0), 600.0)[0] > 0.95
    crowd = np.concatenate(([0.0], np.full(1000, 86_400.0)))
    assert stay(few, crowd, 600.0)[0] > 0.95


def test_the_machine_is_followed_when_it_changes() -> None:
    day, night = exponential(100.0, n=8000), exponential(1500.0, n=8000, seed=5)
    before = forward_time(learnt(day), np.zeros(1))
    half = forward_time(learnt(np.concatenate((day, night[:2000]))), np.zeros(1))
    after = forward_time(learnt(np.concatenate((day, night))), np.zeros(1))
    expected = 1500.0 * -np.expm1(-LONGEST_S / 1500.0)
    assert before == pytest.approx(100.0, rel=0.1)
    assert before < half < 0.8 * after
    assert after == pytest.approx(expected, rel=0.15)


def test_what_was_observed_counts_half_after_so_many_departures() -> None:
    n = int(survival.MEMORY)
    known = observed(observed(Survival(), [5.0] * 100), [1e5] * n)
    assert known.left[0] == pytest.approx(50.0)
    assert known.left[-2:] == (n, 0.0)  # 10 * 2**13 <= 1e5 < 10 * 2**14
    assert known.seen_s[0] == pytest.approx(50.0 * 5.0 + n * 10.0)


def test_one_report_or_several_is_the_same_at_one_moment() -> None:
    ages = exponential(100.0, n=8)
    together, apart = observed(Survival(), ages), learnt(ages, batch=1)
    assert together.left == pytest.approx(apart.left, rel=0.01)
    assert together.seen_s == pytest.approx(apart.seen_s, rel=0.01)
    assert observed(together, []) == together


def test_a_clock_that_was_set_back_makes_no_trouble() -> None:
    """A node that left before it came has been there for no time."""
    known = observed(Survival(), [-5.0, 3.0])
    assert known.left[0] == pytest.approx(2.0)
    assert known.seen_s[0] == pytest.approx(3.0)
    assert 0.0 < stay(known, np.array([-1.0]), 60.0)[0] <= 1.0
    assert forward_time(known, np.array([-1.0, 4.0])) >= SHORTEST_S
