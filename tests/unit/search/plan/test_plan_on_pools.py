"""Forecasts on pools of nodes: against a simulation trial by trial; purchases against all others."""

from __future__ import annotations

import itertools
import math
import random
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.performance import curve
from bftrainer.search.plan.at_once import at_once
from bftrainer.search.plan.buy import buy
from bftrainer.search.plan.model.experiment import Experiment, Stage, successive_halving
from bftrainer.search.plan.model.profile import ExperimentProfile, Latency, Spread
from bftrainer.search.plan.model.simulate import Simulator
from bftrainer.search.plan.model.step import allocations
from bftrainer.search.plan.pools.execution import Execution, Supply, side_by_side
from bftrainer.search.plan.pools.pool import Pool
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
    profile = ExperimentProfile(curve=CURVE, nodes=16, most=8, **changes)  # type: ignore[arg-type]
    return Simulator(Experiment("x", stages), profile, samples=2)


BRACKETS = {
    "halving": (successive_halving(8, 2000, 20_000, 2).stages,),
    "uneven": ((Stage(9, 3000), Stage(3, 6000), Stage(1, 12_000)),),
    "hyperband": (
        (Stage(5, 2000), Stage(2, 4000), Stage(1, 9000)),
        (Stage(3, 6000), Stage(1, 9000)),
        (Stage(2, 9000),),
    ),
}


def of(brackets: Sequence[Sequence[Stage]], log: Log, starts: int, **changes: object) -> Pool:
    """A forecast of brackets that go on at once."""
    own = search(*(stage for stages in brackets for stage in stages), **changes)
    return Pool(own, log, 4 * HOUR, starts, seed=1, brackets=side_by_side(map(len, brackets)))


@pytest.mark.parametrize("start_s", [0.0, 60.0, 300.0])
@pytest.mark.parametrize("name", BRACKETS)
def test_a_forecast_agrees_with_the_search_trial_by_trial(name: str, start_s: float) -> None:
    """Where a standstill costs a trial its time, and which one is hit depends on where nodes are."""
    log = some_log(3, nodes=8)
    found = of(BRACKETS[name], log, 60, start=Latency(start_s)).forecast()

    def rate(nodes: int) -> float:
        return curve.rate(CURVE, nodes)

    ends = [
        ends_at(log.intervals, begin, BRACKETS[name], rate, start_s, 8, log.end) - begin
        for begin in found.begins
    ]
    ratio = found.seconds / np.array(ends)
    assert np.isfinite(ratio).all()
    assert np.median(ratio) == pytest.approx(1.0, abs=0.01)
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.03)
    assert ((ratio > 0.8) & (ratio < 1.25)).mean() > 0.9


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.integers(1, 9),
    start_s=st.sampled_from((0.0, 7.0)),
    trials=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    speeds=st.lists(st.floats(1.05, 3.0), min_size=2, max_size=2),
)
def test_on_nodes_that_stay_a_forecast_is_the_search_trial_by_trial(
    nodes: int, start_s: float, trials: list[int], speeds: list[float]
) -> None:
    brackets = [(Stage(n, 100 * (k + 1)), Stage(max(1, n // 3), 250.0)) for k, n in enumerate(trials)]
    points = ((1, 1.0), (2, 1.0 * speeds[0]), (4, speeds[0] * speeds[1]))
    profile = ExperimentProfile(curve=points, most=4, nodes=nodes, start=Latency(start_s))
    experiment = Experiment("x", tuple(stage for stages in brackets for stage in stages))
    own = Execution(
        Simulator(experiment, profile, samples=1), side_by_side(map(len, brackets)), Supply.none()
    )
    found = own.run(np.zeros(1), np.full((own.phases, 1), nodes))[-1, 0]
    steady = [Interval(0, math.inf, f"n{i}") for i in range(nodes)]

    def rate(count: int) -> float:
        return curve.rate(points, count)

    assert found == pytest.approx(ends_at(steady, 0.0, brackets, rate, start_s, 4, 1e9), rel=1e-6)


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("per", [4, 8])
def test_no_worker_of_a_node_that_trials_share_is_left_over(nodes: int, per: int) -> None:
    """Where twice the workers are twice as fast, all there is to do takes all workers until it is done."""
    most = nodes * per
    profile = ExperimentProfile(
        curve=((1, 1.0), (most, float(most))), nodes=nodes, node_workers=per, most=most
    )
    for trials in range(1, most + 3):
        simulator = Simulator(Experiment("one", (Stage(trials, 100),)), profile, samples=1)
        own = Execution(simulator, side_by_side([1]), Supply.none())
        found = own.run(np.zeros(1), np.full((1, 1), nodes))[-1, 0]
        assert found == pytest.approx(100 * trials / most)


@settings(max_examples=20, deadline=None)
@given(
    trials=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    begun=st.lists(st.floats(1.0, 99.0), max_size=4),
    parallelism=st.sampled_from((None, 3)),
)
def test_each_number_of_nodes_has_the_forecast_that_it_has_alone(
    trials: list[int], begun: list[float], parallelism: int | None
) -> None:
    """Searches that are forecast together end at different times, and give their places to other trials."""
    brackets = [(Stage(n, 100 * (k + 1)), Stage(max(1, n // 3), 250.0)) for k, n in enumerate(trials)]
    simulator = search(
        *itertools.chain(*brackets), parallelism=parallelism, start=Latency(7.0), spread=Spread(0.1)
    )
    first, *others = side_by_side(map(len, brackets))
    own = Execution(
        simulator, (replace(first, begun=tuple(begun[: trials[0]])), *others), Supply.none(), seed=3
    )
    counts = np.arange(2, 17, 2)  # rows draw from the samples in turn: even ones have the same
    together = own.run(np.zeros(16), np.tile(np.repeat(counts, 2), (own.phases, 1)))
    alone = [own.run(np.zeros(1), np.full((own.phases, 1), n)) for n in counts]
    assert np.isfinite(together).all()
    assert np.array_equal(together[:, ::2], np.hstack(alone))


def test_trials_that_wait_cost_a_forecast_nothing() -> None:
    """5,000 trials on 8 nodes from 200 moments: arrays for all of them would take 8 MB each."""
    pool = Pool(search(Stage(5000, 1e6)), some_log(5, nodes=8, hours=20.0), 4 * HOUR)
    tracemalloc.start()
    try:
        assert np.isinf(pool.forecast().seconds).all()
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


def test_each_change_of_its_nodes_holds_up_the_one_trial_that_is_left() -> None:
    """One of eight nodes is replaced every 100 s: a trial on all of them stands still for 30 s then."""
    turns = [Interval(100.0 * max(0, i - 7), 100.0 * (i + 1), f"n{i:04}") for i in range(400)]
    profile = ExperimentProfile(
        curve=((1, 100.0), (8, 800.0)), iteration_samples=8000, most=8, nodes=8, start=Latency(30)
    )
    simulator = Simulator(Experiment("one", (Stage(1, 100),)), profile, samples=1)
    found = Pool(simulator, log_of(turns, 40_000.0), 1200.0).forecast()
    assert np.median(found.seconds) == pytest.approx(1450, abs=5)
    assert found.chance(1200.0) == 0.0


def test_uneven_fits_and_brackets_are_forecast_as_they_ran() -> None:
    """Executed by a daemon on four nodes, whose trials had been measured: 89.8 s, and 122.8 s from when the
    first workers were ready."""
    profile = ExperimentProfile(curve=((1, 39.27), (2, 77.81)), most=2, nodes=4, start=Latency(0.75))
    halving = ((Stage(9, 480), Stage(3, 960), Stage(1, 2880)),)
    brackets = (
        (Stage(5, 480), Stage(1, 960), Stage(1, 2880)),
        (Stage(3, 1440), Stage(1, 2880)),
        (Stage(1, 4320),),
    )
    for own, seconds in ((halving, 89.8), (brackets, 122.8)):
        experiment = Experiment("x", tuple(stage for stages in own for stage in stages))
        run = Execution(Simulator(experiment, profile, samples=1), side_by_side(map(len, own)), Supply.none())
        assert run.run(np.zeros(1), np.full((run.phases, 1), 4))[-1, 0] == pytest.approx(seconds, rel=0.03)


def test_while_a_bracket_is_compared_the_trials_of_others_have_its_nodes() -> None:
    """10 s of the first, all 30 s of the second, the last 10 s of the first, and 7 s to compare."""
    simulator = search(Stage(1, 10), Stage(1, 10), Stage(1, 30), parallelism=1, sync=Latency(7))
    run = Execution(simulator, side_by_side([2, 1]), Supply.none())
    assert run.run(np.zeros(1), np.ones((1, 1), dtype=int))[-1, 0] == pytest.approx(57)


def test_a_steady_pool_gives_what_the_simulator_says() -> None:
    steady = log_of([Interval(0, math.inf, f"n{i}") for i in range(4)], 100 * HOUR)
    simulator = search(Stage(4, 900), Stage(1, 340), init=Latency(30), scale=Latency(10))
    found = Pool(simulator, steady, HOUR, starts=5).forecast()
    assert found.phases[:, 1:] == pytest.approx(np.array([[40 + 900] * 4, [100] * 4]))
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
    with pytest.raises(LogError, match="Take a longer log"):
        Pool(search(Stage(1, 1)), some_log(0), 1000 * HOUR)


@pytest.mark.parametrize("seed", range(2))
def test_a_purchase_is_hardly_dearer_than_the_best_of_all(seed: int) -> None:
    simulator = search(Stage(4, 6000), Stage(1, 6000))
    pool = Pool(simulator, some_log(seed, nodes=4), 3 * HOUR, starts=30)
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


def test_more_nodes_are_bought_where_that_saves_node_hours() -> None:
    """Three trials on two nodes are on time after 200 s; on three they take 300 node-seconds, not 400."""
    own = ExperimentProfile(curve=((1, 1.0), (2, 1.1)), nodes=6, most=2)
    nothing = log_of([Interval(0, 1, "n")], 20 * HOUR)
    found = buy(Pool(Simulator(Experiment("x", (Stage(3, 100),)), own), nothing, 250.0, 9), 0.95)
    assert found.forecast.bought == (3,)
    assert found.total == pytest.approx(300 / HOUR)


def test_nothing_is_bought_where_the_pool_is_enough() -> None:
    steady = log_of([Interval(0, math.inf, f"n{i}") for i in range(4)], 100 * HOUR)
    found = buy(Pool(search(Stage(4, 900)), steady, HOUR), 0.95)
    assert found.total == 0.0 and found.forecast.bought == (0,)


def test_a_chance_that_no_purchase_reaches_is_said() -> None:
    found = buy(Pool(search(Stage(1, 1e6)), some_log(0), HOUR), 0.95)
    assert not found.reached and found.forecast.chance(HOUR) < 0.95


@pytest.mark.filterwarnings("error")
def test_trials_that_take_no_time_are_over_at_once() -> None:
    """A normal spread is cut off at 0."""
    own = ExperimentProfile(curve=((1, 100.0),), nodes=2, most=1, spread=Spread(3.0))
    simulator = Simulator(Experiment("one", (Stage(6, 1000),)), own, samples=64)
    assert (simulator.factors(0) == 0).any()
    plans = at_once(simulator, side_by_side([1]), [2])
    assert np.isfinite(plans[0].estimate.seconds).all()


def test_what_ends_exactly_at_the_deadline_is_in_time() -> None:
    log = log_of([Interval(0.0, math.inf, f"n{n}") for n in range(3)], 200 * HOUR)
    profile = ExperimentProfile(curve=((1, 3.0),), nodes=3, most=1)
    stages = (Stage(5, 100), Stage(2, 7), Stage(1, 1))  # 200, 7 and 1 of its steps one after the other
    pool = Pool(Simulator(Experiment("x", stages), profile, samples=1), log, 208 / 3)
    assert pool.forecast().chance(208 / 3) == 1.0
