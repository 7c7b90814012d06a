"""The planners: against all plans that there are, and against each other."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.search.plan import beside
from bftrainer.search.plan.at_once import at_once
from bftrainer.search.plan.baselines import cheapest, fixed_sizes, fixed_trials
from bftrainer.search.plan.methods.exact import exact, fastest
from bftrainer.search.plan.methods.greedy import greedy, repaired
from bftrainer.search.plan.model.experiment import Experiment, Stage, hyperband, joined, successive_halving
from bftrainer.search.plan.model.profile import Billing, ExperimentProfile, Family, Latency, Per, Spread
from bftrainer.search.plan.model.simulate import PlanEstimate, Simulator
from bftrainer.search.plan.model.step import PlanStep, allocations, nodes_needed
from bftrainer.search.plan.model.table import price, tabulate
from bftrainer.search.plan.planner import plan
from bftrainer.search.plan.pools.execution import Execution, Supply, side_by_side
from bftrainer.search.plan.soonest import Order
from tests.support.every_plan import every_plan

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
    profile = ExperimentProfile(
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


def all_plans(simulator: Simulator) -> list[PlanEstimate]:
    """Every plan: each stage holds any number of nodes, and is shared out on them in any way."""
    options = []
    for k, stage in enumerate(simulator.experiment.stages):
        shapes: dict[int, list[PlanStep]] = {}
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
        assert found.plan.estimate.total == pytest.approx(best, rel=1e-7)


def test_nothing_is_on_time_before_the_fastest_plan() -> None:
    simulator = some_search(3)
    table = tabulate(simulator)
    elastic = fastest(simulator, table).estimate.jct_s
    assert exact(simulator, table, elastic * 0.99).plan is None
    soonest = min(found.estimate.jct_s for found in [*fixed_sizes(simulator), fastest(simulator, table)])
    answer = plan(simulator, soonest * 0.99)
    assert answer.chosen is None and answer.bound is None
    question = beside.Question(simulator.profile, soonest * 0.99, method="exact", samples=8)
    refused = beside.together([simulator.experiment], question)
    costs, answer = refused.later, refused.parts[0].answer
    assert answer.fastest.estimate.jct_s == pytest.approx(soonest)
    assert costs[0].deadline_s == pytest.approx(answer.fresh(answer.fastest).jct_s)
    assert [one.cost for one in costs] == sorted((one.cost for one in costs), reverse=True)


@pytest.mark.parametrize("seed", range(25))
def test_greedy_is_no_worse_than_any_fixed_size_and_no_better_than_exact(seed: int) -> None:
    simulator = some_search(seed)
    table = tabulate(simulator)
    deadline = 1.5 * fastest(simulator, table).estimate.jct_s
    static = cheapest(fixed_sizes(simulator), deadline)
    best = exact(simulator, table, deadline).plan
    mended = repaired(simulator, table, deadline, static)
    assert mended is not None and best is not None
    for found in (greedy(simulator, deadline, static), mended):
        assert (found is None) == (static is None and found is not mended)
        if found is not None:
            assert found.estimate.jct_s <= deadline
            assert static is None or found.estimate.total <= static.estimate.total * (1 + 1e-9)
            if static is None or found.steps != static.steps:
                assert found.estimate.total >= best.estimate.total * (1 - 1e-9)


def paper_profile() -> ExperimentProfile:
    """A trial that scales less than linearly, on nodes with four GPUs that come after 15 s."""
    return ExperimentProfile(
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
    profile = ExperimentProfile(
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


def test_the_repaired_greedy_planner_takes_workers_where_that_saves_most_for_its_time() -> None:
    simulator = Simulator(successive_halving(64, 4, 508), replace(paper_profile(), iteration_samples=4000))
    table, gaps = tabulate(simulator), []
    soonest = fastest(simulator, table).estimate.jct_s
    for tightness in (1.2, 1.5, 2.0, 3.0):
        static = cheapest(fixed_sizes(simulator), tightness * soonest)
        found, best = (
            repaired(simulator, table, tightness * soonest, static),
            exact(simulator, table, tightness * soonest).plan,
        )
        assert found is not None and best is not None
        gaps.append(found.estimate.total / best.estimate.total - 1)
    assert max(gaps) < 0.005


@pytest.mark.parametrize("parallelism", [1, 3, 5, 8, 20])
def test_no_plan_runs_more_trials_at_a_time_than_may(parallelism: int) -> None:
    profile = ExperimentProfile(curve=AMDAHL, node_workers=4, nodes=12, most=16, parallelism=parallelism)
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


@st.composite
def small_searches(draw: st.DrawFn) -> tuple[Experiment, ExperimentProfile]:
    """A search of two stages on few nodes, without anything that is drawn."""
    trials = draw(st.integers(1, 7))
    stages = [Stage(trials, draw(st.integers(1, 20))), Stage(max(1, trials // draw(st.integers(2, 4))), 7)]
    speeds = sorted(draw(st.lists(st.floats(1.0, 8.0), min_size=3, max_size=3)))
    profile = ExperimentProfile(
        curve=tuple(zip((1, 2, 4), speeds, strict=True)),
        iteration_samples=draw(st.sampled_from((30, 100))),
        node_workers=draw(st.integers(1, 4)),
        nodes=draw(st.integers(1, 4)),
        most=draw(st.integers(1, 5)),
        start=Latency(draw(st.sampled_from((0, 5)))),
        scale=Latency(draw(st.sampled_from((0, 20)))),
        init=Latency(draw(st.sampled_from((0, 10)))),
        sync=Latency(draw(st.sampled_from((0, 3)))),
        billing=Billing(
            price=36.0,
            minimum_s=draw(st.sampled_from((0, 60, 600))),
            data_gb=1.0,
            data_price=draw(st.sampled_from((0, 0.5))),
        ),
    )
    return Experiment("small", tuple(stages)), profile


@settings(max_examples=60, deadline=None)
@given(small_searches(), st.floats(0.0, 1.0))
def test_an_oracle_that_prices_every_plan_finds_none_that_is_cheaper(
    search: tuple[Experiment, ExperimentProfile], tightness: float
) -> None:
    experiment, profile = search
    everything = every_plan(experiment.stages, profile)
    simulator = Simulator(experiment, profile, samples=1)
    table = tabulate(simulator)
    soonest, last = min(s for s, _ in everything), max(s for s, _ in everything)
    assert fastest(simulator, table).estimate.jct_s == pytest.approx(soonest)
    until = (soonest + tightness * (last - soonest)) * (1 + 1e-9)
    best = min(cost for seconds, cost in everything if seconds <= until)
    found = exact(simulator, table, until)
    assert found.plan is not None and found.proven
    assert found.plan.estimate.total == pytest.approx(best, rel=1e-6) == found.bound
    as_cheap = min(seconds for seconds, cost in everything if cost <= best * (1 + 1e-9))
    if not profile.billing.minimum_s:
        assert found.plan.estimate.jct_s == pytest.approx(as_cheap, rel=1e-6), "of equal ones the fastest"


def test_nodes_of_an_earlier_stage_are_held_for_a_later_one_that_uses_still_more() -> None:
    """To hold four of the six nodes costs less than to hold all six, or than to have all fetch the data."""
    profile = ExperimentProfile(
        curve=((1, 1.0),), most=1, nodes=7, billing=Billing(price=3600, data_gb=1, data_price=13)
    )
    search = Experiment("hollow", (Stage(4, 10), Stage(1, 10), Stage(6, 10)))
    found = exact(Simulator(search, profile, samples=1), tabulate(Simulator(search, profile, samples=1)), 30)
    assert found.plan is not None and found.proven
    assert [step.nodes for step in found.plan.steps] == [4, 4, 6]
    assert found.plan.estimate.total == pytest.approx(
        min(cost for seconds, cost in every_plan(search.stages, profile) if seconds <= 30)
    )


def drawn(minimum_s: float, std: float = 5.0) -> Simulator:
    """A search whose nodes are paid for longer than their minimum in some draws only."""
    profile = ExperimentProfile(
        curve=((1, 100.0), (2, 146.1), (4, 213.5), (8, 311.9)),
        iteration_samples=1000,
        node_workers=2,
        most=10,
        nodes=5,
        start=Latency(10, std),
        scale=Latency(40, 2 * std),
        init=Latency(20, std),
        billing=Billing(price=12.24, minimum_s=minimum_s, data_gb=10, data_price=0.01, unit="$"),
    )
    return Simulator(Experiment("drawn", (Stage(8, 8), Stage(4, 2), Stage(1, 8))), profile)


@pytest.mark.parametrize("minimum_s", [100, 150, 200, 240])
def test_a_minimum_charge_is_that_of_each_draw(minimum_s: float) -> None:
    simulator = drawn(minimum_s)
    answer = plan(simulator, 240)
    best = answer.others["exact"]
    assert best is not None and answer.proven
    for found in all_plans(simulator):
        if found.jct_s <= 240:
            assert best.estimate.total <= found.total * (1 + 1e-9)


def test_what_others_cost_ends_no_search_for_the_cheapest_even_plan() -> None:
    """`static` runs 81 trials in uneven waves, and is cheaper than all even plans."""
    profile = ExperimentProfile(
        curve=((1, 100.0), (2, 162.84), (4, 265.16), (8, 431.78), (16, 703.09)),
        iteration_samples=1000,
        node_workers=4,
        most=120,
        nodes=30,
        scale=Latency(20),
        spread=Spread(0.3),
        billing=Billing(price=12.24, minimum_s=60, unit="$"),
    )
    search = Experiment("uneven", (Stage(81, 1), Stage(20, 4), Stage(5, 4)))
    answer = plan(Simulator(search, profile), 102)
    best, static = answer.others["exact"], answer.others["static"]
    assert best is not None and static is not None and answer.chosen is not None
    assert [(s.parallel, s.workers, s.nodes) for s in best.steps] == [(41, 1, 11), (11, 4, 11), (5, 8, 10)]
    assert (best.estimate.total, static.estimate.total) == (
        pytest.approx(2.81, abs=0.005),
        pytest.approx(2.65, abs=0.005),
    )
    assert answer.proven and answer.chosen.method in ("static", "greedy")


def test_one_trial_after_the_other_with_more_workers_is_tried() -> None:
    profile = ExperimentProfile(
        curve=((1, 100), (2, 190), (4, 350)),
        iteration_samples=6000,
        node_workers=4,
        nodes=2,
        most=8,
        billing=Billing(price=12.24),
    )
    answer = plan(Simulator(Experiment("waves", (Stage(5, 60),)), profile), 150 * 60)
    assert answer.chosen is not None
    assert [(s.parallel, s.workers, s.nodes) for s in answer.chosen.steps] == [(1, 4, 1)]
    assert answer.chosen.estimate.total == pytest.approx(17.49, abs=0.005)


@pytest.mark.parametrize("node_workers", [1, 2, 3, 4])
@pytest.mark.parametrize("trials", [67, 81, 100])
def test_more_trials_than_places_can_be_planned(trials: int, node_workers: int) -> None:
    profile = ExperimentProfile(
        curve=((1, 100), (2, 190), (4, 340)), iteration_samples=1000, node_workers=node_workers, nodes=4
    )
    answer = plan(Simulator(successive_halving(trials, 1, 27, 3), profile, samples=1), 36_000)
    assert answer.proven and all(answer.others[m] for m in ("exact", "greedy", "greedy-repaired", "static"))


def test_algorithm_2_lowers_to_a_factor_or_multiple_and_ends_where_that_saves_nothing() -> None:
    """By hand: from four nodes the first stage may go to 3 of 6 trials at a time, the second to two workers.
    Only the latter saves; after it, nothing does."""
    profile = ExperimentProfile(curve=((1, 1.0), (2, 1.9), (4, 2.0)), nodes=6, most=6)
    simulator = Simulator(Experiment("two", (Stage(6, 100), Stage(1, 100))), profile, samples=1)
    static = next(found for found in fixed_sizes(simulator) if found.steps[0].nodes == 6)
    found = greedy(simulator, 1000, static)
    assert found is not None
    assert [(s.parallel, s.workers, s.nodes) for s in found.steps] == [(6, 1, 6), (1, 1, 1)]
    mended = repaired(simulator, tabulate(simulator), 1000, static)
    assert mended is not None and mended.estimate.total <= found.estimate.total


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_is_on_time_on_average_of_draws_that_it_was_not_made_with(seed: int) -> None:
    """Eight draws flatter the plan that is the best by them; users see the time of fresh draws."""
    rng = random.Random(seed)
    profile = ExperimentProfile(
        curve=AMDAHL,
        nodes=6,
        spread=Spread(0.5, family=Family.LOGNORMAL),
        billing=Billing(price=3600),
        start=Latency(20, 8),
    )
    experiment = successive_halving(9, rng.uniform(5, 50), 400, 4)
    question = beside.Question(profile, 1.0, samples=8, seed=seed)
    refused = beside.together([experiment], question)
    soonest = refused.parts[0].answer
    first = refused.later[0]
    assert first.deadline_s == pytest.approx(soonest.fresh(soonest.fastest).jct_s)
    for times in (1.0, 1.03, 1.1, 1.3, 2.0):
        deadline_s = first.deadline_s * times
        answer = beside.together([experiment], replace(question, deadline_s=deadline_s)).parts[0].answer
        assert answer.chosen is not None
        for found in answer.others.values():
            assert found is None or answer.fresh(found).jct_s <= deadline_s * (1 + 1e-8)


def test_a_chance_is_kept_on_draws_that_the_plan_was_not_made_with() -> None:
    profile = ExperimentProfile(
        curve=AMDAHL, nodes=16, most=16, spread=Spread(0.3), billing=Billing(price=3600), scale=Latency(10, 5)
    )
    simulator = Simulator(successive_halving(16, 10, 80), profile)
    on_average = plan(simulator, 200)
    often = plan(simulator, 200, chance=0.95)
    assert on_average.chosen is not None and often.chosen is not None
    assert on_average.fresh(on_average.chosen).chance(200) < 0.8
    other = Simulator(simulator.experiment, profile, samples=2000, seed=99)
    assert often.fresh(often.chosen).chance(200) >= 0.95
    assert other.estimate(often.chosen.steps).chance(200) > 0.93
    assert often.chosen.estimate.total > on_average.chosen.estimate.total and not often.proven
    assert plan(simulator, 60, chance=0.95).chosen is None


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 20), st.integers(1, 2), st.floats(0.3, 4.0), st.sampled_from((None, 2, 6)))
def test_brackets_together_hold_no_more_nodes_than_may_be(
    nodes: int, node_workers: int, tightness: float, parallelism: int | None
) -> None:
    own = ExperimentProfile(
        curve=((1, 100), (2, 190), (4, 340)),
        iteration_samples=6000,
        nodes=nodes,
        node_workers=node_workers,
        parallelism=parallelism,
    )
    experiments = hyperband(27, 3)
    work = sum(stage.trials * stage.iterations * 60 for e in experiments for stage in e.stages)
    question = beside.Question(own, tightness * work / min(nodes, parallelism or nodes), samples=1)
    parts = beside.together(experiments, question).parts
    plans = [part.answer.chosen for part in parts if part.answer.chosen]
    if len(plans) < len(parts):
        assert tightness < 2, "one after the other on all nodes takes no longer than that"
        return
    assert sum(p.nodes for p in plans) <= nodes
    assert sum(p.at_a_time for p in plans) <= (parallelism or 10_000)
    assert all(p.estimate.jct_s <= question.deadline_s * (1 + 1e-9) for p in plans)
    assert sum(s.trials * s.iterations for p in parts for s in p.simulator.experiment.stages) * 60 == (
        pytest.approx(work)
    )


def nine(**changes: object) -> ExperimentProfile:
    """Trials on one node or two, of which ten may be had."""
    return ExperimentProfile(
        curve=((1, 100), (2, 190)),
        iteration_samples=1000,
        most=2,
        nodes=10,
        **changes,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("profile", "deadline_s", "cost"),
    [
        (nine(billing=Billing(minimum_s=600)), 1200, 690 / 3600),
        (nine(init=Latency(600)), 7200, (600 + 690) / 3600),
        (nine(init=Latency(60)), 1200, (60 + 690) / 3600),
    ],
)
def test_brackets_follow_each_other_where_their_nodes_would_cost_more_than_they_save(
    profile: ExperimentProfile, deadline_s: float, cost: float
) -> None:
    whole = beside.together(hyperband(9, 3), beside.Question(profile, deadline_s, samples=1))
    assert whole.order is Order.ROW and not whole.proven, "mixtures are not tried"
    found = whole.parts[0].answer.chosen
    assert found is not None and found.estimate.total == pytest.approx(cost)


@pytest.mark.parametrize(("deadline_s", "nodes"), [(7200, 10), (300, 30)])
def test_where_nodes_come_at_once_for_nothing_brackets_are_the_cheapest_as_they_would_be_alone(
    deadline_s: float, nodes: int
) -> None:
    question = beside.Question(replace(nine(), nodes=nodes), deadline_s, samples=1)
    whole = beside.together(hyperband(9, 3), question)
    alone = [question.part(experiment, nodes).answer.chosen for experiment in hyperband(9, 3)]
    plans = [part.answer.chosen for part in whole.parts]
    assert whole.proven and whole.order is Order.BESIDE, "of equal ones the fastest"
    assert sum(p.estimate.total for p in plans if p) == pytest.approx(
        sum(p.estimate.total for p in alone if p)
    )


@pytest.mark.parametrize("nodes", [2, 4, 7])
def test_what_is_late_in_stages_may_be_on_time_trial_by_trial(nodes: int) -> None:
    """The fastest of all orders is no later than the forecast of the daemon's model on as many nodes."""
    experiments, profile = hyperband(9, 3), replace(nine(), nodes=nodes)
    brackets = side_by_side(len(experiment.stages) for experiment in experiments)
    run = Execution(Simulator(joined(experiments), profile, samples=1), brackets, Supply.none())
    seconds = float(run.run(np.zeros(1), np.array([[nodes]]))[-1, 0])
    whole = beside.together(experiments, beside.Question(profile, seconds, samples=1))
    assert all(part.answer.chosen for part in whole.parts)
    refused = beside.together(experiments, beside.Question(profile, 20.0, samples=1))
    assert not any(part.answer.chosen for part in refused.parts)
    assert refused.later[0].deadline_s <= seconds * (1 + 1e-9)
    assert all(one.nodes <= nodes for one in refused.later)
    costs = [one.cost for one in refused.later]
    assert costs == sorted(costs, reverse=True)


def test_nodes_shared_trial_by_trial_are_paid_from_their_initialisation_to_the_end() -> None:
    billing = Billing(price=3600, minimum_s=200, data_gb=1, data_price=7)
    profile = ExperimentProfile(
        curve=((1, 1.0),), nodes=3, scale=Latency(5), init=Latency(10), billing=billing
    )
    search = Experiment("flat", (Stage(5, 100),))
    found = at_once(Simulator(search, profile, samples=2), side_by_side([1]), [1, 2, 3])
    assert [own.estimate.jct_s for own in found] == pytest.approx([515, 315, 215])
    assert [own.estimate.total for own in found] == pytest.approx([517, 2 * 317, 3 * 217])
    assert [own.nodes for own in found] == [1, 2, 3]


def test_trials_whose_starts_differ_take_as_long_trial_by_trial_as_in_a_stage() -> None:
    """On as many nodes as trials both are the same: the slowest start, then what comparing takes."""
    profile = ExperimentProfile(
        curve=((1, 1.0),), most=1, nodes=4, start=Latency(60, 60), sync=Latency(9, 9), spread=Spread(0.1)
    )
    for own in (profile, replace(profile, spread=Spread()), replace(profile, start=Latency(60))):
        simulator = Simulator(Experiment("flat", (Stage(4, 100),)), own, samples=16)
        staged = simulator.estimate([PlanStep(simulator.experiment.stages[0], 4, 1, 4)])
        assert staged.jct_std_s > 0
        (found,) = at_once(simulator, side_by_side([1]), [4])
        assert found.estimate.seconds == pytest.approx(staged.seconds)


def test_of_ways_that_end_as_soon_the_cheapest_is_shown_where_nothing_is_on_time() -> None:
    """The fastest shares of brackets may hold nodes that make no bracket end sooner than the longest."""
    curve = ((1, 100.0), (2, 153.14511994406195), (4, 204.97033534570173), (8, 335.9543753420705))
    profile = ExperimentProfile(
        curve=curve,
        iteration_samples=1000.0,
        node_workers=4,
        nodes=8,
        most=8,
        scale=Latency(15),
        init=Latency(10),
        billing=Billing(price=10, minimum_s=60),
    )
    whole = beside.together(hyperband(16, 4), beside.Question(profile, 0.001, method="exact"))
    shown = [part.answer.fastest for part in whole.parts]
    assert max(plan.estimate.jct_s for plan in shown) == pytest.approx(103.06, abs=0.01)
    assert sum(plan.estimate.total for plan in shown) == pytest.approx(1.684, abs=0.001), "and not $1.774"


def test_brackets_that_share_nodes_are_planned_with_the_draws_of_all_nodes() -> None:
    """Else a deadline that was told to be met, with some of them for each, is too late when asked for."""
    own = ExperimentProfile(
        curve=((1, 100.0), (2, 106.3), (4, 179.0), (8, 209.2)),
        iteration_samples=3000,
        node_workers=2,
        nodes=40,
        most=8,
        init=Latency(10, 4, Family.LOGNORMAL),
        sync=Latency(3),
    )
    brackets = hyperband(4, 4)
    later = beside.together(brackets, beside.Question(own, 1.0, samples=16)).later
    assert later
    for one in later:
        question = beside.Question(own, one.deadline_s, samples=16)
        found = beside.together(brackets, question)
        plans = [question.shown(part.answer) for part in found.parts]
        assert sum(own.estimate.total if own else np.inf for own in plans) <= one.cost * (1 + 1e-9)


def test_brackets_that_share_nodes_are_as_fast_as_their_cost_allows() -> None:
    """A trial on one node costs as much on any share, so the deadline makes no difference."""
    own = ExperimentProfile(curve=((1, 100.0), (2, 180.0), (4, 320.0)), iteration_samples=3000, nodes=8)
    took = []
    for deadline_s in (2400, 20000):
        whole = beside.together(hyperband(27, 3), beside.Question(own, deadline_s, samples=1))
        assert whole.order is Order.BESIDE
        plans = [part.answer.chosen for part in whole.parts]
        assert sum(one.nodes for one in plans if one) <= 8
        took.append(max(one.estimate.jct_s for one in plans if one))
    assert took[0] == pytest.approx(took[1])


def test_nothing_is_proven_with_a_chance() -> None:
    """A trial that is late on average and on time in most draws costs less with one worker than with two."""
    own = ExperimentProfile(curve=((1, 1.0), (2, 1.5)), nodes=2, most=2, spread=Spread(1.0, Family.LOGNORMAL))
    simulator = Simulator(Experiment("one", (Stage(1, 100),)), own, samples=64)
    late = fixed_sizes(simulator)[0]
    deadline_s = 0.95 * late.estimate.jct_s
    found = plan(simulator, deadline_s, chance=0.5)
    assert found.chosen is not None and found.bound is not None
    assert late.estimate.total == found.chosen.estimate.total < found.bound
    assert not found.proven and plan(simulator, deadline_s).proven


def test_a_chance_is_that_of_all_brackets_beside_each_other() -> None:
    """Each is late in its own draws: of three that keep 0.9 each, all are on time in 0.73."""
    own = ExperimentProfile(
        curve=AMDAHL, nodes=64, most=8, spread=Spread(0.3), billing=Billing(price=3600), scale=Latency(10, 5)
    )
    question = beside.Question(own, 80.0, chance=0.9)
    whole = beside.together(hyperband(9, 3), question)
    assert whole.order is Order.BESIDE and len(whole.parts) == 3
    on_time = np.ones(4000, dtype=bool)
    for seed, part in enumerate(whole.parts):
        assert part.answer.chosen is not None
        draws = Simulator(part.simulator.experiment, own, samples=4000, seed=100 + seed)
        on_time &= draws.estimate(part.answer.chosen.steps).seconds.sum(axis=0) <= question.deadline_s
    assert on_time.mean() >= 0.88


@pytest.mark.parametrize(("trials", "workers", "nodes"), [(5, 2, 3), (3, 3, 3), (1, 4, 1), (2, 6, 4)])
def test_the_workers_of_a_trial_stand_together(trials: int, workers: int, nodes: int) -> None:
    assert nodes_needed(trials, workers, node_workers=4) == nodes


@pytest.mark.parametrize("chance", [None, 0.95])
def test_what_ends_exactly_at_the_deadline_is_on_time(chance: float | None) -> None:
    profile = ExperimentProfile(curve=((1, 10.0),), nodes=1, start=Latency(0.1))
    found = plan(Simulator(Experiment("x", (Stage(1, 2),)), profile), 0.3, chance)  # 0.1 + 0.2 > 0.3
    assert found.chosen is not None and found.fresh(found.chosen).chance(0.3) == 1.0
    assert all(found.others.values())


def test_more_nodes_never_make_the_optimum_dearer() -> None:
    """A node takes as long to be ready, however many more may be had."""
    own = ExperimentProfile(curve=((1, 100.0), (4, 300.0)), scale=Latency(5), init=Latency(20, 8))
    stages = Stage(9, 3000), Stage(3, 20_000)
    costs = []
    for nodes in (3, 4, 5, 9, 14):
        simulator = Simulator(Experiment("x", stages), replace(own, nodes=nodes))
        found = exact(simulator, tabulate(simulator), 900.0)
        assert found.plan is not None and found.proven
        costs.append(found.plan.estimate.total)
    assert costs == pytest.approx(np.minimum.accumulate(costs), rel=1e-9)
