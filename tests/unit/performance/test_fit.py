"""What is estimated of speeds: robust to disturbed windows, always a usable curve, bounded exploration."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.model.trainer import Points
from bftrainer.performance import curve, fit
from tests.support.measured_speeds import FEW, amdahl, at, levels

OBSERVED = st.dictionaries(
    st.integers(1, 200), st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=4), min_size=1, max_size=8
)
PRIORS = st.dictionaries(st.integers(1, 300), st.floats(1e-2, 1e7), max_size=4).map(
    lambda points: tuple(sorted(points.items()))
)


@settings(deadline=None, derandomize=True)  # of 9,000 draws, two have a median that is 4 standard errors off
@given(st.floats(0.0, 0.05), st.integers(0, 10_000))
def test_amdahls_law_is_recovered_from_noisy_windows(c1: float, seed: int) -> None:
    noise = random.Random(seed)
    windows = {n: [amdahl(n, c1) * math.exp(noise.gauss(0.0, 0.05)) for _ in range(9)] for n in FEW}
    model = fit.fit(levels(windows), (), 64)
    for n in (3, 12, 32):
        assert at(model, n) == pytest.approx(amdahl(n, c1), rel=0.15)


@settings(deadline=None)
@given(st.sampled_from(FEW), st.floats(0.0, 0.9))
def test_disturbed_windows_hardly_move_a_size(size: int, share: float) -> None:
    windows = {n: [amdahl(n, 0.02)] * 9 for n in FEW}
    windows[size][:4] = [max(1e-6, share * windows[size][0])] * 4  # stalls, checkpoints
    assert at(fit.fit(levels(windows), (), 64), size) == pytest.approx(amdahl(size, 0.02))


@settings(deadline=None)
@given(st.sampled_from(FEW), st.floats(0.1, 0.6))
def test_one_size_that_is_far_off_hardly_moves_the_others(size: int, share: float) -> None:
    windows = {n: [amdahl(n, 0.02)] * 5 for n in (*FEW, 32)}
    windows[size] = [share * rate for rate in windows[size]]
    model = fit.fit(levels(windows), (), 64)
    assert float(model.model(np.array([48.0]))[0]) == pytest.approx(amdahl(48, 0.02), rel=0.2)


@settings(deadline=None)
@given(OBSERVED, PRIORS, st.integers(1, 50), st.integers(0, 400))
def test_every_estimate_is_a_curve_and_asks_for_twice_the_largest_size_at_most(
    rates: dict[int, list[float]], prior: Points, n_min: int, more: int
) -> None:
    n_max = n_min + more
    estimate = fit.estimated(levels(rates), prior, n_min, n_max, 1.0)
    assert curve.make(estimate.points) == estimate.points
    covered = prior[-1][0] if prior else 0
    assert n_min <= estimate.n_max <= min(n_max, max(2 * n_min, 2 * max(rates), covered))
    known = dict(estimate.points)
    for n, rate, _ in levels(rates):
        if n <= estimate.n_max:
            assert known[n] == pytest.approx(rate)


@settings(deadline=None)
@given(OBSERVED)
def test_without_a_curve_more_nodes_are_never_slower_by_the_model(rates: dict[int, list[float]]) -> None:
    nodes = np.arange(1.0, 400.0)
    for optimistic in (False, True):
        model = fit.fit(levels(rates), (), 400).model(nodes, optimistic=optimistic)
        assert np.all(np.isfinite(model))
        assert np.all(model > 0)
        assert np.all(np.diff(model) >= -1e-9 * model[1:])


@settings(deadline=None)
@given(OBSERVED, PRIORS)
def test_what_was_not_seen_is_hoped_for(rates: dict[int, list[float]], prior: Points) -> None:
    model = fit.fit(levels(rates), prior, 400)
    largest = max(rates)
    for n in (largest + 1, 2 * largest):
        assert at(model, n, optimistic=True) >= at(model, n) * (1 - 1e-9)
        assert math.isfinite(float(model.error(np.array([float(n)]))[0]))


def test_one_size_says_nothing_against_scaling_linearly() -> None:
    assert dict(fit.estimated(levels({4: [40.0]}), (), 1, 64, 1.0).points)[8] == pytest.approx(80.0)


def test_a_trainer_that_does_not_scale_is_not_hoped_for_once_that_is_known() -> None:
    flat = {n: [100.0] * 9 for n in (1, 2, 4)}
    assert dict(fit.estimated(levels(flat), (), 1, 64, 1.0).points)[8] < 130.0


def test_the_shape_of_a_given_curve_is_kept_until_it_is_refuted() -> None:
    given_ = ((1, 100.0), (8, 400.0), (32, 800.0))
    half = dict(fit.estimated(levels({8: [200.0]}), given_, 1, 32, 1.0).points)
    assert half[32] == pytest.approx(400.0)
    refuted = {n: [n * 100.0] * 5 for n in (1, 8, 16, 24)}  # it scales linearly
    assert dict(fit.estimated(levels(refuted), given_, 1, 32, 1.0).points)[32] == pytest.approx(3200, rel=0.2)


def test_sizes_beyond_a_trainers_own_limit_do_no_harm() -> None:
    """Others of its program were on more nodes than it may be given."""
    rates = {1: [1.0, 1.0], 3: [4.0], 4: [1.0]}
    model = fit.fit(levels(rates), ((1, 1.0),), 1)
    assert np.all(model.model(np.arange(1.0, 5.0)) > 0)
    assert at(model, 4) == pytest.approx(1.0)
