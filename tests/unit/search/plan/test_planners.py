"""The planners: against all plans that there are, and against each other."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from bftrainer.search.plan.baselines import cheapest, fixed_sizes, fixed_trials
from bftrainer.search.plan.exact import exact, fastest
from bftrainer.search.plan.experiment import Experiment, Stage, successive_halving
from bftrainer.search.plan.greedy import greedy
from bftrainer.search.plan.planner import later, plan
from bftrainer.search.plan.profile import Billing, Latency, Per, Profile, Spread
from bftrainer.search.plan.simulate import Estimate, Simulator
from bftrainer.search.plan.step import Step, allocations
from bftrainer.search.plan.table import price, tabulate

AMDAHL = tuple((n, n / (1 + 0.08 * (n - 1))) for n in (1, 2, 4, 8, 16))


def some_search(seed: int) -> Simulator:
    """A small search with everything that planners have to mind, made up from a seed."""
    rng = random.Random(seed)
    trials = rng.choice((4, 6, 8, 9))
    stages = []
    per = rng.choice((Per.NODE, Per.NODE, Per.FUNCTION))
    for _ in range(2 if per is Per.FUNCTION else rng.choice((2, 3))):
        stages.append(Stage(trials, rng.uniform(20, 200)))
        trials = max(1, trials // rng.choice((2, 3)))
    profile = Profile(
        curve=AMDAHL,
        node_workers=rng.choice((1, 2, 4)),
        nodes=rng.choice((4, 7)),
        most=16,
        spread=Spread(rng.choice((0.0, 0.2))),
        scale=Latency(rng.choice((0, 10))),
        init=Latency(rng.choice((0, 10)), rng.choice((0, 2))),
        billing=Billing(
            per=per,
            price=3600,
            minimum_s=rng.choice((0, 60, 120)),
            data_gb=rng.choice((0, 1)),
            data_price=rng.choice((5, 50)),
        ),
    )
    return Simulator(Experiment("made up", tuple(stages)), profile, samples=8, held=rng.choice((0, 0, 2)))


def all_plans(simulator: Simulator) -> list[Estimate]:
    """Every plan: each stage holds any number of nodes, and is shared out on them in any way."""
    options = []
    for k, stage in enumerate(simulator.experiment.stages):
        shapes: dict[int, list[Step]] = {}
        for nodes in range(1, simulator.profile.nodes + 1):
            own = [replace(s, nodes=nodes) for s in allocations(stage, simulator.profile) if s.nodes <= nodes]
            own.sort(key=lambda s: simulator.stage(k, s)[0].mean())
            shapes[nodes] = own if simulator.profile.billing.per is Per.FUNCTION else own[:1]
        options.append([step for own in shapes.values() for step in own])
    return [simulator.estimate(steps) for steps in itertools.product(*options)]


@pytest.mark.parametrize("seed", range(25))
def test_no_plan_on_time_is_cheaper_than_the_exact_one(seed: int) -> None:
    simulator = some_search(seed)
    everything = all_plans(simulator)
    table = tabulate(simulator)
    times = sorted(estimate.jct_s for estimate in everything)
    assert fastest(simulator, table).estimate.jct_s == pytest.approx(times[0])
    for deadline in (times[0], times[len(times) // 8], times[len(times) // 2], times[-1]):
        best = min(e.total for e in everything if e.jct_s <= deadline * (1 + 1e-9))
        found = exact(simulator, table, deadline * (1 + 1e-9))
        assert found.plan is not None and found.proven
        assert found.plan.estimate.jct_s <= deadline * (1 + 1e-8)
        # a minimum charge is computed from means, and drawn ones differ a little
        exactly = simulator.profile.billing.minimum_s == 0
        assert found.plan.estimate.total == pytest.approx(best, rel=1e-7 if exactly else 0.02)


def test_nothing_is_on_time_before_the_fastest_plan() -> None:
    simulator = some_search(3)
    table = tabulate(simulator)
    elastic = fastest(simulator, table).estimate.jct_s
    assert exact(simulator, table, elastic * 0.99).plan is None
    soonest = min(found.estimate.jct_s for found in [*fixed_sizes(simulator), fastest(simulator, table)])
    answer = plan(simulator, soonest * 0.99)
    assert answer.chosen is None and answer.bound is None
    costs = later(simulator, answer)
    assert costs[0].deadline_s == pytest.approx(soonest)
    assert [one.cost for one in costs] == sorted((one.cost for one in costs), reverse=True)


@pytest.mark.parametrize("seed", range(25))
def test_greedy_is_no_worse_than_any_fixed_size_and_no_better_than_exact(seed: int) -> None:
    simulator = some_search(seed)
    table = tabulate(simulator)
    deadline = 1.5 * fastest(simulator, table).estimate.jct_s
    static = cheapest(fixed_sizes(simulator), deadline)
    found, best = greedy(simulator, table, deadline, static), exact(simulator, table, deadline).plan
    assert found is not None and found.estimate.jct_s <= deadline
    if static is not None:
        assert found.estimate.total <= static.estimate.total
    if found.method == "greedy" and best is not None:
        assert found.estimate.total >= best.estimate.total * (
            0.98 if simulator.profile.billing.minimum_s else 1 - 1e-9
        )


def paper_profile() -> Profile:
    """A trial that scales less than linearly, on nodes with four GPUs that come after 15 s."""
    return Profile(
        curve=((1, 500), (2, 950), (4, 1700), (8, 2800), (16, 4000)),
        iteration_samples=30_000,
        node_workers=4,
        most=64,
        nodes=128,
        scale=Latency(15),
        init=Latency(15),
        billing=Billing(price=12.24, minimum_s=60, unit="$"),
    )


def test_a_tight_deadline_is_met_for_less_by_an_elastic_plan() -> None:
    """The shape of RubberBand's tables 2 and 3: trials grow from stage to stage, the cluster shrinks."""
    simulator = Simulator(successive_halving(32, 1, 50, 3), paper_profile())
    answer = plan(simulator, 600)
    assert answer.chosen is not None
    static, naive = answer.others["static"], answer.others["naive elastic"]
    assert static is not None and naive is not None
    assert answer.chosen.estimate.total < 0.7 * static.estimate.total
    assert answer.chosen.estimate.total < 0.7 * naive.estimate.total
    nodes = [step.nodes for step in answer.chosen.steps]
    assert nodes == sorted(nodes, reverse=True)
    assert answer.bound is not None and answer.bound <= answer.chosen.estimate.total * (1 + 1e-9)


def test_a_lax_deadline_costs_no_more_than_a_fixed_size() -> None:
    answer = plan(Simulator(successive_halving(32, 1, 50, 3), paper_profile()), 7200)
    static = answer.others["static"]
    assert answer.chosen is not None and static is not None
    assert answer.chosen.estimate.total <= static.estimate.total


@pytest.mark.parametrize("seed", range(6))
def test_with_stragglers_no_fixed_size_is_cheaper_than_the_exact_plan(seed: int) -> None:
    rng = random.Random(seed)
    profile = Profile(
        curve=AMDAHL,
        nodes=32,
        most=4,
        spread=Spread(0.3),
        billing=Billing(per=Per.FUNCTION, price=3600, data_gb=1, data_price=rng.choice((50, 500))),
    )
    search = Experiment("made up", (Stage(32, rng.uniform(20, 200)), Stage(8, 100)))
    simulator = Simulator(search, profile, samples=16, seed=seed)
    table, fixed = tabulate(simulator), fixed_sizes(simulator)
    for deadline_s in sorted(found.estimate.jct_s for found in fixed)[::3]:
        static, best = cheapest(fixed, deadline_s), exact(simulator, table, deadline_s).plan
        assert static is not None and best is not None
        assert best.estimate.total <= static.estimate.total * (1 + 1e-9)


def test_the_fixed_number_of_workers_is_the_same_for_all_trials() -> None:
    simulator = Simulator(successive_halving(32, 1, 50, 3), paper_profile())
    for found in fixed_trials(simulator):
        assert len({step.workers for step in found.steps}) == 1
        assert [step.parallel for step in found.steps] == [32, 10, 3, 1]


@pytest.mark.parametrize("seed", range(25))
def test_the_tables_say_what_the_simulator_says(seed: int) -> None:
    simulator = some_search(seed)
    table, rng = tabulate(simulator), random.Random(seed)
    for _ in range(20):
        path = [rng.randrange(len(options)) for options in table.steps]
        seconds, cost = price(table, path)
        found = simulator.estimate([options[i] for options, i in zip(table.steps, path, strict=True)])
        assert seconds == pytest.approx(found.jct_s)
        exactly = simulator.profile.billing.minimum_s == 0  # else it is computed from a mean
        assert cost == pytest.approx(found.total, rel=1e-9 if exactly else 0.02)


def test_greedy_takes_workers_where_that_saves_most_for_its_time() -> None:
    simulator = Simulator(successive_halving(64, 4, 508), replace(paper_profile(), iteration_samples=4000))
    table, gaps = tabulate(simulator), []
    soonest = fastest(simulator, table).estimate.jct_s
    for tightness in (1.2, 1.5, 2.0, 3.0):
        static = cheapest(fixed_sizes(simulator), tightness * soonest)
        found, best = (
            greedy(simulator, table, tightness * soonest, static),
            exact(simulator, table, tightness * soonest).plan,
        )
        assert found is not None and best is not None
        gaps.append(found.estimate.total / best.estimate.total - 1)
    assert max(gaps) < 0.005


@pytest.mark.parametrize("parallelism", [1, 3, 5, 8, 20])
def test_no_plan_runs_more_trials_at_a_time_than_may(parallelism: int) -> None:
    profile = Profile(curve=AMDAHL, node_workers=4, nodes=12, most=16, parallelism=parallelism)
    simulator = Simulator(successive_halving(8, 10, 80, eta=2), profile, samples=2)
    answer = plan(simulator, 2000.0)
    assert answer.chosen is not None
    found = [p for p in (answer.chosen, *answer.others.values(), answer.fastest) if p is not None]
    assert all(step.parallel <= parallelism for p in found for step in p.steps)
    assert any(step.parallel == min(parallelism, step.stage.trials) for step in answer.fastest.steps)
    free = plan(Simulator(simulator.experiment, replace(profile, parallelism=None), samples=2), 2000.0)
    assert free.chosen is not None
    assert free.chosen.estimate.total <= answer.chosen.estimate.total + 1e-9
    assert answer.chosen.estimate.total <= min(
        p.estimate.total for p in answer.others.values() if p is not None
    )
