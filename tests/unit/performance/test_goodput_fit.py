"""The system model is found again from times that it made, and what was not seen is taken as free."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bftrainer.performance import goodput_fit
from bftrainer.performance.goodput import GoodputError, SystemModel
from bftrainer.performance.goodput_fit import IterationTime, fit, most_workers

TRUE = SystemModel(
    alpha_grad=0.05,
    beta_grad=0.002,
    alpha_local=0.02,
    beta_local=0.003,
    alpha_node=0.1,
    beta_node=0.004,
    gamma=2.0,
)
SIZES = [(1, 1), (1, 2), (1, 4), (2, 2), (2, 8), (4, 16)]


def seen(
    system: SystemModel,
    sizes: list[tuple[int, int]],
    batches: tuple[int, ...] = (16, 64),
    *,
    gradient: bool = True,
) -> list[IterationTime]:
    """What a trainer of this system measures on these sizes."""
    return [
        IterationTime(
            nodes,
            workers,
            batch,
            float(system.iteration_time(nodes, workers, batch)),
            float(system.gradient_time(batch)) if gradient else None,
        )
        for nodes, workers in sizes
        for batch in batches
    ]


@settings(deadline=None, max_examples=40)
@given(
    st.builds(
        SystemModel,
        alpha_grad=st.floats(0.01, 0.2),
        beta_grad=st.floats(1e-4, 0.01),
        alpha_local=st.floats(0.005, 0.1),
        beta_local=st.floats(1e-4, 0.01),
        alpha_node=st.floats(0.01, 0.5),
        beta_node=st.floats(1e-4, 0.02),
        gamma=st.floats(1.0, 4.0),
    ),
    st.booleans(),
)
@example(  # a short step on the way once ended the search
    SystemModel(
        alpha_grad=0.01,
        beta_grad=0.0001,
        alpha_local=0.008949,
        beta_local=0.008138723505416246,
        alpha_node=0.4375,
        beta_node=0.005147863476326077,
        gamma=4.0,
    ),
    False,
)
def test_times_of_a_known_system_are_found_again(system: SystemModel, gradient: bool) -> None:
    found = fit(seen(system, SIZES, gradient=gradient))
    for nodes, workers in [*SIZES, (2, 6), (3, 12)]:
        for batch in (16, 32, 64):
            expected = float(system.iteration_time(nodes, workers, batch))
            assert float(found.iteration_time(nodes, workers, batch)) == pytest.approx(expected, rel=0.2)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0.3, 3), min_size=7, max_size=7))
def test_the_gradient_of_the_error_is_its_slope(by: list[float]) -> None:
    data = goodput_fit._Data.of(seen(TRUE, SIZES))
    x = np.array([0.05, 0.002, 0.02, 0.003, 0.1, 0.004, 1.0]) / 0.1 * by
    x[6] = 1 + by[6]
    scale = np.array([0.1] * 6 + [1.0])
    _, slopes = data.error(x, scale)
    for i in range(7):
        step = np.zeros(7)
        step[i] = 1e-5
        slope = (data.error(x + step, scale)[0] - data.error(x - step, scale)[0]) / 2e-5
        assert slopes[i] == pytest.approx(slope, rel=1e-3, abs=1e-6)


def test_one_worker_says_nothing_of_synchronising_so_that_it_is_free() -> None:
    found = fit(seen(TRUE, [(1, 1)]))
    assert (found.alpha_local, found.beta_local, found.alpha_node, found.beta_node) == (0, 0, 0, 0)
    assert float(found.iteration_time(4, 16, 64)) == pytest.approx(float(found.iteration_time(1, 1, 64)))


def test_one_node_says_nothing_of_the_network() -> None:
    found = fit(seen(TRUE, [(1, 1), (1, 2), (1, 4)]))
    assert found.alpha_local > 0
    assert (found.alpha_node, found.beta_node) == (0, 0)


def test_two_workers_say_nothing_of_the_slowdown_by_more() -> None:
    found = fit(seen(TRUE, [(1, 1), (1, 2), (2, 2)]))
    assert found.alpha_local > 0
    assert found.alpha_node > 0
    assert (found.beta_local, found.beta_node) == (0, 0)


def test_a_single_batch_leaves_half_of_the_time_to_grow_with_it() -> None:
    found = fit(seen(TRUE, [(1, 1)], (64,)))
    assert found.alpha_grad == pytest.approx(found.beta_grad * 64, rel=1e-3)
    assert float(found.gradient_time(64)) == pytest.approx(float(TRUE.gradient_time(64)), rel=1e-3)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.builds(
            lambda nodes, more, batch, time: IterationTime(nodes, nodes + more, batch, time),
            st.integers(1, 16),
            st.integers(0, 48),
            st.integers(1, 100_000),
            st.floats(1e-7, 1e6),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_whatever_was_measured_gives_a_model(observed: list[IterationTime]) -> None:
    found = fit(observed)
    assert math.isfinite(float(found.iteration_time(4, 16, 64)))


def test_at_most_twice_the_most_workers_so_far_are_asked_for() -> None:
    assert most_workers([], 64) == 1
    assert most_workers(seen(TRUE, [(1, 1)]), 64) == 2
    assert most_workers(seen(TRUE, [(1, 4), (1, 1)]), 64) == 8
    assert most_workers(seen(TRUE, [(4, 16)]), 20) == 20


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(GoodputError, match="measure one"):
        fit([])


@pytest.mark.parametrize("time", [math.nan, 0.0, -1.0, math.inf])
def test_a_time_that_is_none_is_refused(time: float) -> None:
    with pytest.raises(GoodputError, match="iteration time"):
        IterationTime(1, 1, 8, time)
    with pytest.raises(GoodputError, match="gradient time"):
        replace(seen(TRUE, [(1, 1)])[0], gradient_s=time)


@pytest.mark.parametrize(("nodes", "workers", "batch"), [(0, 1, 8), (2, 1, 8), (1, 1, 0)])
def test_a_size_that_is_none_is_refused(nodes: int, workers: int, batch: int) -> None:
    with pytest.raises(GoodputError, match="workers on"):
        IterationTime(nodes, workers, batch, 1.0)
