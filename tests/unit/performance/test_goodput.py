"""Goodput beside the paper's equations written out, and the choice of batches beside all that there are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.performance.goodput import (
    BatchLimits,
    GoodputError,
    GoodputModel,
    SystemModel,
    efficiency,
    gain,
    noise_scale,
    split,
)

SECONDS = st.floats(1e-6, 10.0)
SYSTEMS = st.builds(
    SystemModel,
    alpha_grad=SECONDS,
    beta_grad=SECONDS,
    alpha_local=SECONDS,
    beta_local=SECONDS,
    alpha_node=SECONDS,
    beta_node=SECONDS,
    gamma=st.floats(1.0, 10.0),
)
SIZES = st.integers(1, 16).flatmap(lambda k: st.tuples(st.integers(1, k), st.just(k)))
LIMITS = st.builds(
    lambda initial, factor, least, most: BatchLimits(
        initial=initial, most=max(initial * factor, least), local_least=least, local_most=max(least, most)
    ),
    st.integers(1, 16),
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(6, 40),
)
SYSTEM = SystemModel(alpha_grad=0.1, beta_grad=0.01, alpha_local=0.05, alpha_node=0.2, beta_node=0.01)


def written_out(system: SystemModel, nodes: int, workers: int, batch: int, steps: int) -> float:
    """T_iter by equations 9 to 11, one branch each."""
    gradient = system.alpha_grad + system.beta_grad * batch
    if workers == 1:
        sync = 0.0
    elif nodes == 1:
        sync = system.alpha_local + system.beta_local * (workers - 2)
    else:
        sync = system.alpha_node + system.beta_node * (workers - 2)
    largest = max(gradient, sync)
    c = system.gamma
    return steps * gradient + largest * ((gradient / largest) ** c + (sync / largest) ** c) ** (1 / c)


def reachable(limits: BatchLimits, workers: int) -> set[tuple[int, int]]:
    """Each (batch of a worker, accumulation) that the limits allow, by enumeration."""
    found = set()
    for total in range(max(limits.initial, limits.local_least * workers), limits.most + 1):
        share = -(-total // workers)
        steps = -(-share // limits.local_most) - 1
        if workers == 1 and total > limits.initial:
            steps = max(1, steps)
        batch = max(1, min(-(-share // (steps + 1)), limits.most // (workers * (steps + 1))))
        found.add((batch, steps))
    return found


@given(SYSTEMS, SIZES, st.integers(1, 4096), st.integers(0, 8))
def test_the_time_of_an_iteration_is_the_papers(
    system: SystemModel, size: tuple[int, int], batch: int, steps: int
) -> None:
    expected = written_out(system, *size, batch, steps)
    assert float(system.iteration_time(*size, batch, steps)) == pytest.approx(expected)
    model = GoodputModel(system, BatchLimits(initial=1, most=10**6, local_most=10**6), math.inf)
    for speed in (model.throughput(*size, batch, steps), model.goodput(*size, batch, steps)):
        assert float(speed) == pytest.approx(size[1] * batch * (steps + 1) / expected)


@given(st.floats(0, 1e9), st.integers(1, 1000), st.integers(1, 100))
def test_a_step_of_adascale_counts_its_efficiency_times_its_batch(phi: float, initial: int, by: int) -> None:
    batch = initial * by
    assert 0 < float(efficiency(phi, initial, batch)) <= 1
    assert float(gain(phi, initial, batch)) == pytest.approx((phi / initial + 1) / (phi / batch + 1))
    assert float(gain(phi, initial, batch)) * (1 + 1e-12) >= 1


@settings(deadline=None)
@given(SYSTEMS, LIMITS, SIZES, st.floats(0, 1e6))
def test_the_chosen_batch_is_about_the_best_of_all(
    system: SystemModel, limits: BatchLimits, size: tuple[int, int], phi: float
) -> None:
    model = GoodputModel(system, limits, phi)
    chosen = model.best(*size)
    every = reachable(limits, size[1])
    if not every:
        assert float(chosen.goodput) == 0
        return
    assert (int(chosen.batch), int(chosen.accumulation)) in every
    assert limits.local_most >= int(chosen.batch)
    assert size[1] * int(chosen.batch) * (int(chosen.accumulation) + 1) <= max(limits.most, size[1])
    best = max(float(model.goodput(*size, batch, steps)) for batch, steps in every)
    assert float(chosen.goodput) >= 0.97 * best  # the candidates are geometric steps


@given(LIMITS, st.integers(1, 16), st.integers(1, 200))
def test_a_split_holds_the_batch_and_fits_the_memory(limits: BatchLimits, workers: int, total: int) -> None:
    batch, steps = split(limits, workers, min(total, limits.most))
    assert 1 <= int(batch) <= limits.local_most
    assert workers * int(batch) * (int(steps) + 1) >= min(total, limits.most) - workers * (int(steps) + 1)


@settings(deadline=None)
@given(SYSTEMS, LIMITS, st.floats(0, 1e6))
def test_many_sizes_at_once_are_as_one_by_one(system: SystemModel, limits: BatchLimits, phi: float) -> None:
    model = GoodputModel(system, limits, phi)
    workers = np.arange(1, 9)
    nodes = -(-workers // 4)
    at_once = model.best(nodes, workers)
    for i, (n, k) in enumerate(zip(nodes, workers, strict=True)):
        one = model.best(int(n), int(k))
        assert at_once.goodput[i] == pytest.approx(float(one.goodput))


def test_a_trainer_alone_has_a_speedup_of_one() -> None:
    model = GoodputModel(SYSTEM, BatchLimits(initial=8, most=512, local_most=64), 1000.0)
    assert float(model.speedup(1, 1)) == 1
    assert 1 < float(model.speedup(1, 4)) < 4
    assert float(model.speedup(4, 4)) < float(model.speedup(1, 4)), "the network is slower than a node"


def test_noise_lets_the_batch_grow() -> None:
    limits = BatchLimits(initial=8, most=4096, local_most=64)
    totals = []
    for phi in (1.0, 100.0, 10_000.0, math.inf):
        found = GoodputModel(SYSTEM, limits, phi).best(2, 8)
        totals.append(8 * int(found.batch) * (int(found.accumulation) + 1))
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]


def test_without_a_noise_scale_the_least_batch_and_the_throughput_decide() -> None:
    model = GoodputModel(SYSTEM, BatchLimits(initial=32, most=4096, local_most=64), None)
    found = model.best(1, 4)
    assert (int(found.batch), int(found.accumulation)) == (8, 0)
    assert float(found.goodput) == pytest.approx(float(model.throughput(1, 4, 8)))


def test_more_workers_than_the_largest_batch_can_share_have_no_goodput() -> None:
    limits = BatchLimits(initial=8, most=16, local_least=4, local_most=8)
    assert GoodputModel(SYSTEM, limits, 10.0).speedup([1, 2], [4, 5]).tolist()[1] == 0


@pytest.mark.parametrize("bad", [math.nan, -1.0, math.inf])
def test_a_parameter_that_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(GoodputError, match="beta_grad is"):
        SystemModel(alpha_grad=0.1, beta_grad=bad)
    with pytest.raises(GoodputError):
        SystemModel(alpha_grad=0.1, beta_grad=0.1, gamma=bad)


@pytest.mark.parametrize(
    ("sqr", "var"), [(math.nan, 1.0), (1.0, -1e-9), (-1.0, 1.0), (1.0, math.inf), (0, 0)]
)
def test_gradient_statistics_that_cannot_be_are_refused(sqr: float, var: float) -> None:
    with pytest.raises(GoodputError, match="gradient"):
        noise_scale(8, sqr, var)


def test_a_gradient_that_vanishes_in_its_noise_makes_every_batch_efficient() -> None:
    assert noise_scale(8, 0.0, 1.0) == math.inf
    assert efficiency(math.inf, 8, [8, 800]).tolist() == [1, 1]
    assert noise_scale(8, 2.0, 1.0) == 4


@pytest.mark.parametrize("phi", [math.nan, -1.0])
def test_a_noise_scale_that_cannot_be_is_refused(phi: float) -> None:
    with pytest.raises(GoodputError, match="noise scale"):
        GoodputModel(SYSTEM, BatchLimits(initial=1, most=2, local_most=2), phi)


@pytest.mark.parametrize(
    "bad",
    [
        {"initial": 8, "most": 4, "local_most": 4},
        {"initial": 0, "most": 4, "local_most": 4},
        {"initial": 1, "most": 4, "local_least": 3, "local_most": 2},
        {"initial": 1, "most": 4, "local_least": 5, "local_most": 6},
    ],
)
def test_batch_limits_that_contradict_each_other_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(GoodputError, match=r"batch|samples"):
        BatchLimits(**bad)


def test_sizes_that_cannot_be_are_refused() -> None:
    model = GoodputModel(SYSTEM, BatchLimits(initial=1, most=8, local_most=8), 1.0)
    for nodes, workers in ((2, 1), (0, 1), (1, 0)):
        with pytest.raises(GoodputError, match="each node has one or more"):
            model.best(nodes, workers)


def test_more_workers_than_were_seen_are_believed_to_slow_nothing_down() -> None:
    limits = BatchLimits(initial=8, most=4096, local_most=64)
    all_seen, few_seen = GoodputModel(SYSTEM, limits, 1e6), GoodputModel(SYSTEM, limits, 1e6, seen=8)
    assert float(all_seen.goodput(2, 8, 64)) == float(few_seen.goodput(2, 8, 64))
    assert float(few_seen.goodput(4, 16, 64)) > float(all_seen.goodput(4, 16, 64))
