"""Times of iterations that follow what was measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bftrainer.performance.goodput import BatchLimits, GoodputModel, SystemModel
from bftrainer.performance.goodput_fit import IterationTime, fit
from bftrainer.performance.goodput_times import NOISE, REACH, measured

FITTED = SystemModel(alpha_grad=0.1, beta_grad=0.01, alpha_local=0.05, alpha_node=0.2, beta_node=0.01)
SIZES = ((1, 1, 16), (1, 4, 16), (1, 4, 64), (2, 8, 16), (4, 16, 64))


def seen(nodes: int, workers: int, batch: int, slower: float, gradient: float = 1.0) -> IterationTime:
    """A time that is off the model by these factors."""
    step = float(FITTED.iteration_time(nodes, workers, batch))
    return IterationTime(nodes, workers, batch, slower * step, gradient * float(FITTED.gradient_time(batch)))


def test_a_measured_size_has_its_time_and_a_far_one_the_models() -> None:
    off = dict(zip(SIZES, (1.0, 2.0, 1.0, 0.5, 3.0), strict=True))
    found = measured(FITTED, [seen(*size, slower) for size, slower in off.items()])
    for size, slower in {**off, (256, 1024, 10**6): 1.0}.items():
        expected = slower * float(FITTED.iteration_time(*size))
        assert float(found.iteration_time(*size)) == pytest.approx(expected, rel=0.01)


def test_accumulated_gradients_follow_their_own_times() -> None:
    found = measured(FITTED, [seen(1, 4, 16, 2.0, gradient=1.5)])
    passes = float(found.iteration_time(1, 4, 16, 3)) - float(found.iteration_time(1, 4, 16))
    assert passes == pytest.approx(3 * 1.5 * float(FITTED.gradient_time(16)), rel=0.01)


def test_times_without_gradients_leave_these_as_they_were_fitted() -> None:
    found = measured(FITTED, [IterationTime(1, 4, 16, 2.0)])
    passes = float(found.iteration_time(1, 4, 16, 1)) - float(found.iteration_time(1, 4, 16))
    assert passes == pytest.approx(float(FITTED.gradient_time(16)))


def test_between_measurements_it_is_the_best_linear_prediction() -> None:
    """Written out: weights solve (K + noise) w = off, and a size's logarithm is off by the sum of its
    covariances times these."""
    rng = np.random.default_rng(1)
    slower = np.exp(rng.normal(0, 0.3, len(SIZES)))
    found = measured(FITTED, [seen(*size, factor) for size, factor in zip(SIZES, slower, strict=True)])

    def alike(one: tuple[int, ...], other: tuple[int, ...]) -> float:
        pairs = zip(one, other, REACH, strict=True)
        return math.exp(-sum(abs(math.log2(a / b)) / reach for a, b, reach in pairs))

    matrix = [[alike(one, other) + NOISE * (one == other) for other in SIZES] for one in SIZES]
    weights = np.linalg.inv(matrix) @ np.log(slower)
    for size in ((1, 2, 16), (1, 4, 32), (3, 12, 24), (2, 2, 8)):
        off = sum(alike(size, other) * weight for other, weight in zip(SIZES, weights, strict=True))
        assert float(found.iteration_time(*size)) == pytest.approx(
            float(FITTED.iteration_time(*size)) * math.exp(off)
        )


def test_two_times_of_one_size_count_as_their_mean() -> None:
    found = measured(FITTED, [seen(1, 4, 16, 1.0), seen(1, 4, 16, 4.0)])
    assert float(found.iteration_time(1, 4, 16)) == pytest.approx(
        2 * float(FITTED.iteration_time(1, 4, 16)), rel=0.01
    )


def test_a_program_that_is_slower_on_two_nodes_than_on_one_and_faster_on_three_is_known_as_such() -> None:
    """As yolov3 was measured: no seven parameters say so."""
    steps = {(1, 4): 1.0, (2, 8): 2.4, (3, 12): 2.0, (4, 16): 2.3}
    times = [IterationTime(*size, 8, step, 0.5) for size, step in steps.items()]
    limits = BatchLimits(initial=8, most=512, local_least=8, local_most=8)
    followed = GoodputModel(measured(fit(times), times), limits, None)
    one, two, three, four = (float(followed.throughput(*size, 8)) for size in steps)
    assert two < one < three < four
    assert [one, two, three, four] == pytest.approx([32, 26.7, 48, 55.7], rel=0.01)
