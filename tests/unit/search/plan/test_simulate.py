"""Plans, simulated: against the graph task by task, and against costs computed by hand."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from bftrainer.search.plan.model.dag import duration, listed
from bftrainer.search.plan.model.experiment import Experiment, Stage
from bftrainer.search.plan.model.profile import (
    Billing,
    ExperimentProfile,
    Family,
    Latency,
    Per,
    Spread,
    SpreadOf,
)
from bftrainer.search.plan.model.simulate import Simulator
from bftrainer.search.plan.model.step import PlanStep, allocations, of_nodes, of_workers

LINEAR = ((1, 1.0), (64, 64.0))


@pytest.mark.parametrize(("trials", "parallel"), [(5, 2), (7, 7), (6, 4), (3, 1), (2, 4)])
def test_the_next_trial_goes_to_whoever_is_free_first(trials: int, parallel: int) -> None:
    trains = np.random.default_rng(1).random((3, trials))
    ends = []
    for draw in trains:
        running: list[float] = []
        for seconds in draw:
            begin = heapq.heappop(running) if len(running) == parallel else 0.0
            heapq.heappush(running, begin + seconds)
        ends.append(max(running))
    assert listed(trains, parallel) == pytest.approx(ends)


def test_layers_follow_each_other() -> None:
    first, second = np.array([[1.0, 4.0], [3.0, 2.0]]), np.array([[5.0], [6.0]])
    assert duration([first, second]) == pytest.approx([9.0, 9.0])


def test_a_stage_in_waves_waits_for_no_place_while_another_is_free() -> None:
    """Nine trials of 100 s on four nodes: by draws trial by trial 271.7 s, as independently computed."""
    profile = ExperimentProfile(
        curve=((1, 100.0),), iteration_samples=10_000, nodes=4, spread=Spread(0.3, Family.LOGNORMAL)
    )
    simulator = Simulator(Experiment("x", (Stage(9, 1),)), profile, samples=20_000)
    found = simulator.estimate([PlanStep(Stage(9, 1), 4, 1, 4)])
    assert found.jct_s == pytest.approx(271.7, rel=0.005)
    assert found.total == pytest.approx(0.302, rel=0.005)
    assert simulator.at_least(0, PlanStep(Stage(9, 1), 4, 1, 4)) <= found.jct_s


def two_stages(**changes: object) -> Simulator:
    """Four trials for 100 s, then one for 50 s, on workers that are nodes."""
    profile = ExperimentProfile(curve=LINEAR, nodes=16, most=16, **changes)  # type: ignore[arg-type]
    return Simulator(Experiment("x", (Stage(4, 100), Stage(1, 50))), profile, samples=4)


def steps(simulator: Simulator, *workers: int) -> list[PlanStep]:
    """The stages on so many workers."""
    stages = simulator.experiment.stages
    return [of_workers(stage, n, simulator.profile) for stage, n in zip(stages, workers, strict=True)]


def test_nodes_are_paid_from_their_initialisation_to_their_release() -> None:
    simulator = two_stages(scale=Latency(7), init=Latency(3), sync=Latency(1))
    found = simulator.estimate(steps(simulator, 4, 1))
    assert found.seconds[:, 0] == pytest.approx([7 + 3 + 100 + 1, 50 + 1])
    assert found.cost[:, 0] * 3600 == pytest.approx([4 * 104, 51])


def test_nodes_that_stay_are_paid_while_others_are_waited_for() -> None:
    simulator = two_stages(scale=Latency(7), init=Latency(3))
    found = simulator.estimate(steps(simulator, 1, 2))
    assert found.seconds[:, 0] == pytest.approx([10 + 400, 10 + 25])
    assert found.cost[:, 0] * 3600 == pytest.approx([403, 35 + 28])


def test_nodes_that_are_there_already_cost_no_wait() -> None:
    simulator = two_stages(scale=Latency(7), billing=Billing(minimum_s=1000))
    simulator.held = 4
    found = simulator.estimate(steps(simulator, 4, 1))
    assert found.seconds[:, 0] == pytest.approx([100, 50])
    assert found.total * 3600 == pytest.approx(450)


def test_nodes_that_come_back_have_their_minimum_again() -> None:
    simulator = two_stages(billing=Billing(minimum_s=1000))
    simulator.held = 4
    assert simulator.estimate(steps(simulator, 1, 4)).total * 3600 == pytest.approx(400 + 12.5 + 3 * 1000)


def test_a_node_that_is_given_back_early_costs_its_minimum() -> None:
    simulator = two_stages(billing=Billing(minimum_s=120))
    assert simulator.estimate(steps(simulator, 4, 1)).cost[:, 0] * 3600 == pytest.approx([400 + 3 * 20, 50])
    assert simulator.estimate(steps(simulator, 4, 4)).total * 3600 == pytest.approx(4 * 120)


def test_every_new_node_fetches_the_data_once() -> None:
    simulator = two_stages(billing=Billing(price=0.0, data_gb=150, data_price=0.01))
    assert simulator.estimate(steps(simulator, 4, 1)).total == pytest.approx(6.0)
    assert simulator.estimate(steps(simulator, 1, 3)).total == pytest.approx(4.5)


def test_functions_are_paid_while_they_work() -> None:
    billing = Billing(per=Per.FUNCTION, minimum_s=60)
    simulator = two_stages(billing=billing, spread=Spread(0.3), init=Latency(9))
    found = simulator.estimate(steps(simulator, 4, 2))
    own = simulator.stage(0, steps(simulator, 4, 2)[0])
    assert found.cost[0] * 3600 == pytest.approx(own[1])
    assert (found.cost[0] * 3600 < 4 * own[0]).all(), "nobody pays for those that wait for the slowest"
    assert found.cost[1] * 3600 == pytest.approx(np.maximum(60, found.seconds[1] - 0) * 2)


def test_stragglers_hold_up_a_stage_with_many_trials() -> None:
    calm, wild = two_stages(), two_stages(spread=Spread(0.5))
    wild.samples = calm.samples = 2000
    one = wild.estimate(steps(wild, 4, 1)).seconds.mean(axis=1)
    assert calm.estimate(steps(calm, 4, 1)).seconds[:, 0] == pytest.approx([100, 50])
    assert one[0] == pytest.approx(100 * (1 + 0.5 * 1.03), rel=0.05), "the greatest of four normal numbers"
    assert one[1] == pytest.approx(50, rel=0.05)


def test_iterations_that_differ_by_themselves_even_out() -> None:
    assert Spread(0.2, of=SpreadOf.ITERATION).factor(100).std == pytest.approx(0.02)


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("std", [0.2, 0.8, 2.0])
def test_a_task_of_iterations_that_are_cut_off_takes_as_long_as_they_do(std: float, family: Family) -> None:
    rng, spread = np.random.default_rng(0), Spread(std, family, SpreadOf.ITERATION)
    iterations = Latency(1.0, std, family).of(rng.standard_normal((20_000, 30))).mean(axis=1)
    task = spread.factor(30).of(rng.standard_normal(20_000))
    assert task.mean() == pytest.approx(iterations.mean(), rel=0.01), "not the mean before the cut"
    assert task.std() == pytest.approx(iterations.std(), rel=0.05)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 60.0), (10.0, 60.0), (100.0, 60.0), (5.0, 1e-300)])
def test_a_latency_that_is_cut_off_has_the_mean_of_what_is_drawn(mean: float, std: float) -> None:
    own = Latency(mean, std)
    drawn = own.of(np.random.default_rng(0).standard_normal(200_000))
    assert own.expected == pytest.approx(drawn.mean(), rel=0.01)
    assert own.averaged(1e4).std == pytest.approx(drawn.std() / 100, rel=0.01, abs=1e-12)


@pytest.mark.parametrize("family", list(Family))
def test_a_latency_has_its_mean_and_deviation(family: Family) -> None:
    drawn = Latency(20.0, 3.0, family).of(np.random.default_rng(0).standard_normal(200_000))
    assert drawn.mean() == pytest.approx(20, rel=0.01)
    assert drawn.std() == pytest.approx(3, rel=0.02)
    assert (drawn >= 0).all()


def test_the_same_seed_gives_the_same_figures_and_another_one_others() -> None:
    def total(seed: int) -> float:
        simulator = two_stages(spread=Spread(0.5))
        simulator.seed = seed
        return simulator.estimate(steps(simulator, 4, 1)).total

    assert total(1) == total(1) != total(2)


def test_allocations_share_workers_out_evenly() -> None:
    profile = ExperimentProfile(curve=LINEAR, node_workers=4, nodes=6)
    found = [(s.parallel, s.workers, s.nodes) for s in allocations(Stage(6, 1), profile)]
    assert [own for own in found if own[1] == 1] == [(1, 1, 1), (2, 1, 1), (3, 1, 1), (6, 1, 2)]
    assert [own for own in found if own[0] == 6] == [(6, 1, 2), (6, 2, 3), (6, 3, 6), (6, 4, 6)]
    assert [own for own in found if own[0] == 3][-1] == (3, 8, 6) and (1, 24, 6) in found
    fixed = of_nodes(Stage(6, 1), 4, profile)
    assert fixed is not None and (fixed.parallel, fixed.workers, fixed.nodes) == (6, 2, 4)


def test_a_trial_with_a_least_size_waits_rather_than_shrinks() -> None:
    profile = ExperimentProfile(curve=LINEAR, least=2, most=4, nodes=8)
    found = [(s.parallel, s.workers) for s in allocations(Stage(4, 1), profile)]
    assert found == [(1, 2), (1, 3), (1, 4), (2, 2), (2, 3), (2, 4), (4, 2)]
    fixed = of_nodes(Stage(4, 1), 5, profile)
    assert fixed is not None and (fixed.parallel, fixed.workers, fixed.nodes) == (2, 2, 5)
    assert of_nodes(Stage(4, 1), 1, profile) is None
