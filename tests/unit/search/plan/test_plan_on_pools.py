"""Forecasts on pools of nodes: against a simulation trial by trial; purchases against all others."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from bftrainer.performance import curve
from bftrainer.search.plan.buy import buy
from bftrainer.search.plan.experiment import Experiment, Stage, successive_halving
from bftrainer.search.plan.pool import Pool
from bftrainer.search.plan.profile import Latency, Profile
from bftrainer.search.plan.simulate import Simulator
from bftrainer.search.plan.step import allocations
from bftrainer.traces.characteristics import course
from bftrainer.traces.intervals import Interval, LogError
from bftrainer.traces.logs import Log
from tests.support.trial_by_trial import ends_at

HOUR = 3600.0
CURVE = ((1, 1.0), (2, 1.9), (4, 3.4), (8, 5.6))


def log_of(intervals: list[Interval], end: float) -> Log:
    """A log that begins at 0."""
    names = frozenset(i.node for i in intervals)
    return Log(intervals, names, len(names), "intervals", len(intervals), 0, (), (), 0.0, end)


def some_log(seed: int, nodes: int = 12, hours: float = 200.0) -> Log:
    """Nodes that come and go at random."""
    rng, found = random.Random(seed), []
    for n in range(nodes):
        at = rng.expovariate(1 / HOUR)
        while at < hours * HOUR:
            end = at + rng.expovariate(1 / HOUR)
            found.append(Interval(at, end if end < hours * HOUR else math.inf, f"n{n}"))
            at = end + rng.expovariate(1 / HOUR)
    return log_of(found, hours * HOUR)


def search(*stages: Stage, **changes: object) -> Simulator:
    """A search on nodes of one worker each."""
    profile = Profile(curve=CURVE, nodes=16, most=8, **changes)  # type: ignore[arg-type]
    return Simulator(Experiment("x", stages), profile, samples=2)


@pytest.mark.parametrize("seed", range(6))
def test_a_forecast_agrees_with_the_search_trial_by_trial(seed: int) -> None:
    stages = successive_halving(8, 2000, 20_000, 2).stages
    log = some_log(seed)
    pool = Pool(search(*stages), log, 4 * HOUR, starts=40, seed=seed)
    found, pooled = pool.forecast(), course(log)

    def rate(nodes: int) -> float:
        return curve.rate(CURVE, min(8, nodes))

    ends = np.array(
        [ends_at(pooled.times - begin, pooled.sizes.astype(int), stages, rate) for begin in found.begins]
    )
    both = np.isfinite(ends) & np.isfinite(found.seconds)
    assert both.mean() > 0.9
    ratio = found.seconds[both] / ends[both]
    assert 0.99 < np.median(ratio) < 1.12, (
        "a little late: who waits for a wave in the model gets a node earlier"
    )
    assert ((ratio > 0.8) & (ratio < 1.4)).mean() > 0.9
    late = np.median(ends)
    assert -0.3 < found.chance(late) - (ends <= late).mean() < 0.05


def test_a_steady_pool_gives_what_the_simulator_says() -> None:
    steady = log_of([Interval(0, math.inf, f"n{i}") for i in range(4)], 100 * HOUR)
    simulator = search(Stage(4, 900), Stage(1, 340), init=Latency(30), scale=Latency(10))
    found = Pool(simulator, steady, HOUR, starts=5).forecast()
    assert found.stages[:, 1:] == pytest.approx(np.array([[40 + 900] * 4, [100] * 4]))
    assert found.chance(1039.0) < 1.0 == found.chance(1041.0)


def test_a_node_that_comes_is_used_when_it_is_ready() -> None:
    late = log_of([Interval(1000, math.inf, "n0")], 100 * HOUR)
    found = Pool(search(Stage(1, 500), init=Latency(60)), late, 10.0, starts=36_000).forecast()
    assert found.seconds[0] + found.begins[0] == pytest.approx(1560)


def test_a_trial_stands_still_when_its_nodes_change() -> None:
    turns = [Interval(i * 100.0, (i + 1) * 100.0 if i < 999 else math.inf, f"n{i}") for i in range(1000)]
    calm = Pool(search(Stage(1, 1000)), log_of(turns, 1e5), 10.0, starts=20).forecast()
    busy = Pool(search(Stage(1, 1000), start=Latency(20)), log_of(turns, 1e5), 10.0, starts=20).forecast()
    ends = np.isfinite(busy.seconds)
    assert busy.seconds[ends].mean() == pytest.approx(1.25 * calm.seconds[ends].mean(), rel=0.05)


def test_what_ends_after_the_log_is_not_said_to_end() -> None:
    found = Pool(
        search(Stage(1, 500), Stage(1, 10)), log_of([Interval(0, 400, "n0")], 2000.0), 100.0
    ).forecast()
    assert np.isinf(found.seconds).all()
    assert found.chance(100.0) == 0.0


def test_the_interval_counts_only_moments_that_do_not_overlap() -> None:
    log = some_log(1)
    simulator = search(*successive_halving(8, 2000, 20_000, 2).stages)
    few, many = (Pool(simulator, log, 4 * HOUR, starts=n).forecast() for n in (200, 2000))
    deadline = float(np.median(many.seconds))
    low, high = many.interval(deadline)
    assert many.apart == 50 and low < many.chance(deadline) < high
    assert high - low == pytest.approx(few.interval(deadline)[1] - few.interval(deadline)[0], rel=0.2)


def test_a_log_shorter_than_the_deadline_is_refused() -> None:
    with pytest.raises(LogError, match="take a longer log"):
        Pool(search(Stage(1, 1)), some_log(0), 1000 * HOUR)


@pytest.mark.parametrize("seed", range(4))
def test_a_purchase_is_hardly_dearer_than_the_best_of_all(seed: int) -> None:
    simulator = search(Stage(4, 4000), Stage(2, 3000), Stage(1, 4000))
    pool = Pool(simulator, some_log(seed, nodes=4), 3 * HOUR, starts=60)
    assert pool.forecast().chance(3 * HOUR) < 0.9
    sizes = [
        [0, *{s.nodes for s in allocations(stage, simulator.profile)}]
        for stage in simulator.experiment.stages
    ]
    everything = [pool.forecast(bought) for bought in itertools.product(*sizes)]
    on_time = [f for f in everything if f.chance(3 * HOUR) >= 0.9]
    best = min(float(f.node_hours(3 * HOUR).sum()) for f in on_time)
    found = buy(pool, 0.9)
    assert found.reached and found.forecast.chance(3 * HOUR) >= 0.9
    assert best * (1 - 1e-9) <= found.total <= 1.05 * best


def test_nothing_is_bought_where_the_pool_is_enough() -> None:
    steady = log_of([Interval(0, math.inf, f"n{i}") for i in range(4)], 100 * HOUR)
    found = buy(Pool(search(Stage(4, 900)), steady, HOUR), 0.95)
    assert found.total == 0.0 and found.forecast.bought == (0,)


def test_a_chance_that_no_purchase_reaches_is_said() -> None:
    found = buy(Pool(search(Stage(1, 1e6)), some_log(0), HOUR), 0.95)
    assert not found.reached and found.forecast.chance(HOUR) < 0.95
