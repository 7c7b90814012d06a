"""Replays: figures worked out by hand, and where all node-time goes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.model.events import NodesChanged
from bftrainer.model.policy import EngineSettings, WeightsBy
from bftrainer.model.trainer import Cost, RescaleCosts, TrainerSpec
from bftrainer.replay.figures import figures_of
from bftrainer.replay.loop import Simulate, replay
from bftrainer.replay.tally import Result
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.trainers.measuring import MeasuringLauncher
from bftrainer.replay.trainers.simulated import SimulatedTrainer
from bftrainer.replay.workload import Submission
from bftrainer.traces import intervals
from bftrainer.traces.intervals import Interval
from tests.support.replays import ENDLESS, SETTINGS, generated, trainer

INF = float("inf")


def play(
    log: list[Interval], *specs: TrainerSpec, end: float = 100.0, at: float = 0.0, max_parallel: int = 10
) -> Result:
    changes = intervals.changes(log, frozenset(i.node for i in log), 0.0, end)
    chosen = replace(SETTINGS, max_parallel=max_parallel)
    return replay(changes, [Submission(at, spec) for spec in specs], chosen, 0.0, end)


def test_one_trainer_grows_and_is_preempted() -> None:
    """a: initialises 0-3, stands 3-5, trains on; b: initialises 20-23, both stand 23-25, b leaves at 60, a
    stands 60-61. Trained: 5-23 on 1, 25-60 on 2, 61-100 on 1."""
    log = [Interval(0.0, 100.0, "a"), Interval(20.0, 60.0, "b")]
    result = play(log, trainer())
    assert result.samples == pytest.approx(10 * (18 + 2 * 35 + 39), rel=1e-12)
    own = result.trainers[1]
    assert (own.stall_node_s, own.init_node_s) == (pytest.approx(2 + 4 + 1), pytest.approx(3 + 3))
    tally = result.tally
    assert (tally.node_s, tally.idle_node_s) == (pytest.approx(140.0), pytest.approx(0.0))
    assert (tally.preemptions, tally.completed, tally.events) == (1, 0, 4)
    figures = figures_of(result, [Submission(0.0, trainer())], SETTINGS)
    assert figures["equivalent_nodes"] == pytest.approx(1.4)
    assert figures["efficiency_u"] == pytest.approx(1270 / 1400)  # between 1000 on 1 node and 2000 on 2
    assert figures["linear_efficiency"] == pytest.approx(127 / 140)
    assert figures["node_hours"] == pytest.approx(140 / 3600)
    assert figures["stall_node_hours"] == pytest.approx(7 / 3600)
    assert figures["init_node_hours"] == pytest.approx(6 / 3600)
    assert figures["unproven_decisions"] == 0


def test_a_trainer_is_as_fast_as_the_class_of_its_nodes_is() -> None:
    """By hand: on two nodes of the class 200 samples/s, as on dedicated ones; two nodes stay unused."""
    spec = replace(trainer(), curves=(("fat", ((4, 400.0),)),), costs=RescaleCosts())
    log = [Interval(0.0, 100.0, node) for node in ("f1", "f2", "t1", "t2")]
    changes = intervals.changes(log, frozenset(i.node for i in log), 0.0, 100.0)
    chosen = replace(SETTINGS, node_classes={"fat": frozenset({"f1", "f2", "f3"})})
    workload = [Submission(0.0, spec)]
    result = replay(changes, workload, chosen, 0.0, 100.0)
    assert result.samples == pytest.approx(20_000)
    figures = figures_of(result, workload, chosen)
    assert figures["linear_efficiency"] == pytest.approx(0.5)
    assert figures["efficiency_u"] == pytest.approx(1.0)
    assert figures["equivalent_nodes"] == pytest.approx(4.0)


def test_the_first_decision_is_about_all_that_wait_at_the_begin() -> None:
    """The second is faster, and no node of the first's has to be taken away for it."""
    slow, fast = (
        replace(trainer(n_min=2, n_max=2, rate=own), costs=RescaleCosts(down=Cost(stall_s=60)))
        for own in (5.0, 7.0)
    )
    result = play([Interval(0.0, 100.0, "a"), Interval(0.0, 100.0, "b")], slow, fast)
    assert result.samples == pytest.approx(2 * 7 * 100)
    assert (len(result.tally.decisions), result.tally.rescales, result.tally.events) == (1, 1, 3)


def test_a_trainer_that_needs_more_nodes_than_there_are_is_in_nobodys_way() -> None:
    log = [Interval(0.0, 100.0, "a")]
    result = play(log, trainer(n_min=2), trainer(), max_parallel=1)
    assert result.samples == pytest.approx(10 * 95)
    dedicated = figures_of(result, [Submission(0.0, trainer(n_min=2)), Submission(0.0, trainer())], SETTINGS)
    assert dedicated["efficiency_u"] == pytest.approx(0.95), "nor in that of those on dedicated nodes"


def test_a_stall_is_added_to_what_is_left_of_the_one_before() -> None:
    """b joins at 23 for a stall until 25, leaves at 24: 1 s is left, 1 s of shrinking comes on top."""
    log = [Interval(0.0, 100.0, "a"), Interval(20.0, 24.0, "b")]
    result = play(log, trainer())
    assert result.samples == pytest.approx(10 * (18 + (100 - 26)), rel=1e-12)
    assert result.trainers[1].stall_node_s == pytest.approx(2 + 1 * 2 + 2 * 1)


def test_members_train_on_while_a_newcomer_that_never_joins_initialises() -> None:
    log = [Interval(0.0, 100.0, "a"), Interval(20.0, 22.0, "b")]
    result = play(log, trainer())
    assert result.samples == pytest.approx(10 * 95)
    assert result.trainers[1].init_node_s == pytest.approx(3 + 2)
    assert result.tally.preemptions == 1


def test_a_trainer_ends_at_exactly_its_work_and_the_next_one_takes_its_node() -> None:
    """5-14.5 the first trains, 14.5-17.5 the second initialises, 17.5-19.5 it stands, to 50 it trains."""
    result = play([Interval(0.0, 100.0, "a")], trainer(samples=95), trainer(), end=50.0, max_parallel=1)
    assert (result.trainers[1].samples, result.trainers[1].ended_at) == (95.0, pytest.approx(14.5))
    assert (result.trainers[2].samples, result.trainers[2].ended_at) == (pytest.approx(305.0), None)
    assert result.tally.completed == 1


def test_the_end_of_work_is_put_off_by_a_stall_and_idle_nodes_are_counted() -> None:
    """95 samples: 9.5 s of training from 5 on; a second node that it may not use stays idle."""
    result = play([Interval(0.0, 100.0, "a"), Interval(0.0, 100.0, "b")], trainer(samples=95, n_max=1))
    assert result.trainers[1].ended_at == pytest.approx(14.5)
    assert result.samples == 95.0
    assert result.tally.completed == 1
    assert result.tally.idle_node_s == pytest.approx(200 - 14.5)


def test_a_prediction_of_the_end_is_dropped_when_the_trainer_rescales() -> None:
    """300 samples: 18 s on one node, then 60 / 20 s on two from 25 on."""
    log = [Interval(0.0, 100.0, "a"), Interval(20.0, 100.0, "b")]
    result = play(log, trainer(samples=240))
    assert result.trainers[1].ended_at == pytest.approx(25 + 60 / 20)
    assert result.samples == 240.0


def test_below_the_minimum_nobody_trains() -> None:
    """Two nodes for n_min = 2 until 50, then one."""
    log = [Interval(0.0, 100.0, "a"), Interval(0.0, 50.0, "b")]
    result = play(log, trainer(n_min=2))
    assert result.samples == pytest.approx(20 * 45)
    assert result.tally.idle_node_s == pytest.approx(50.0)


def test_survivors_below_the_minimum_wait_for_the_newcomer() -> None:
    """b goes and c comes at 50: c initialises 50-53, both stand 53-55; a alone does not train."""
    log = [Interval(0.0, 100.0, "a"), Interval(0.0, 50.0, "b"), Interval(50.0, 100.0, "c")]
    result = play(log, trainer(n_min=2))
    assert result.samples == pytest.approx(20 * (45 + 45))
    assert (result.trainers[1].init_node_s, result.trainers[1].stall_node_s) == (
        pytest.approx(9),
        pytest.approx(8),
    )


def test_trainers_start_no_sooner_than_they_arrive() -> None:
    result = play([Interval(0.0, 100.0, "a")], trainer(), at=40.0)
    assert result.samples == pytest.approx(10 * 55)
    assert result.tally.idle_node_s == pytest.approx(40.0)
    assert play([Interval(0.0, 100.0, "a")], trainer(), at=100.0).samples == 0.0
    early = play([Interval(0.0, 100.0, "a")], trainer(), at=-500.0)
    assert early.samples == pytest.approx(10 * 95)


def test_without_nodes_or_trainers_all_figures_are_zero() -> None:
    empty = play([], trainer())
    assert (empty.samples, empty.tally.node_s) == (0.0, 0.0)
    assert figures_of(empty, [Submission(0.0, trainer())], SETTINGS)["efficiency_u"] == 0.0
    unused = play([Interval(0.0, 100.0, "a")])
    assert figures_of(unused, [], SETTINGS)["efficiency_u"] == 0.0
    assert unused.tally.idle_node_s == 100.0


# --- replays of anything -------------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> list[Interval]:
    """Up to 5 nodes, each idle now and then in 0..100."""
    found = []
    for node in range(draw(st.integers(1, 5))):
        moments = sorted(draw(st.sets(st.integers(0, 100), max_size=8)))
        found += [
            Interval(float(a), float(b), f"n{node}")
            for a, b in zip(moments[::2], moments[1::2], strict=False)
        ]
    return found


specs = st.builds(
    lambda samples, n_min, more, rate, init_s, stall_s: replace(
        trainer(samples=samples, n_min=n_min, n_max=n_min + more, rate=rate),
        costs=RescaleCosts(up=Cost(stall_s=stall_s, init_s=init_s), down=Cost(stall_s=stall_s / 2)),
    ),
    samples=st.sampled_from([50, 1000, ENDLESS]),
    n_min=st.integers(1, 3),
    more=st.integers(0, 3),
    rate=st.sampled_from([1.0, 7.0, 10.0]),
    init_s=st.sampled_from([0.0, 1.5, 8.0]),
    stall_s=st.sampled_from([0.0, 1.0, 6.0]),
)


@settings(max_examples=150, deadline=None)
@given(logs(), st.lists(st.tuples(st.integers(-5, 60), specs), max_size=5), st.integers(1, 3))
def test_all_node_time_is_accounted_for(
    log: list[Interval], submitted: list[tuple[int, TrainerSpec]], max_parallel: int
) -> None:
    """Node-time is trained, idle, stood still, spent initialising, or waited in too small a membership."""
    waited = 0.0
    advance = SimulatedTrainer.advance

    def watched(self: SimulatedTrainer, now: float) -> None:
        nonlocal waited
        stall = max(0.0, min(self.stalled_until, now) - self.clock)
        if self.rate == 0.0:
            waited += max(0.0, now - self.clock - stall) * len(self.members)
        advance(self, now)

    changes = intervals.changes(log, frozenset(i.node for i in log), 0.0, 100.0)
    jobs = [Submission(float(at), spec) for at, spec in submitted]
    chosen = replace(SETTINGS, max_parallel=max_parallel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedTrainer, "advance", watched)
        result = replay(changes, jobs, chosen, 0.0, 100.0)
    total = sum(i.end - i.start for i in log)
    runs = result.trainers.values()
    trained = sum(own.samples / (own.spec.curve[-1][1] / own.spec.n_max) for own in runs if own.spec.curve)
    stalled, initialised = sum(own.stall_node_s for own in runs), sum(own.init_node_s for own in runs)
    assert result.tally.node_s == pytest.approx(total)
    parts = (trained, result.tally.idle_node_s, stalled, initialised, waited)
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(total), parts
    for own in runs:
        assert own.spec.samples is not None
        assert own.samples <= own.spec.samples
        at_the_end = own.ended_at is None and own.clock == 100.0  # nothing comes after it, not even its own
        assert (own.ended_at is not None) == (own.samples == own.spec.samples) or at_the_end
    assert result.tally.completed == sum(own.ended_at is not None for own in runs)


def untimed(changes: list[NodesChanged], jobs: list[Submission], chosen: EngineSettings) -> dict[str, object]:
    figures = figures_of(replay(changes, jobs, chosen, 0.0, 300.0), jobs, chosen)
    timing = figures.pop("decision_ms")
    assert isinstance(timing, dict)
    assert set(timing) == {"p50", "p99", "max"}
    return figures


@pytest.mark.parametrize("allocator", ["knapsack", "milp", "equal"])
def test_same_arguments_same_figures(allocator: str) -> None:
    log = generated(8, 300.0, seed=1)
    jobs = [Submission(10.0 * i, trainer(samples=3000, n_min=1 + i % 2, rate=5.0 + i)) for i in range(6)]
    chosen = EngineSettings(allocator=allocator, max_parallel=4)
    figures = untimed(log, jobs, chosen)
    assert figures == untimed(log, jobs, chosen)
    assert 0 < float(str(figures["efficiency_u"])) <= 1
    assert (figures["unproven_decisions"] == 0) == (allocator != "equal")


def test_progress_reaches_from_the_beginning_towards_the_end() -> None:
    seen: list[float] = []
    replay(generated(4, 100.0), [], SETTINGS, 0.0, 100.0, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[0] == 0.0
    assert seen[-1] < 100.0


@pytest.mark.parametrize("knowledge", [SimulatedLauncher, MeasuringLauncher])
def test_who_has_least_left_to_do_passes_others_only_by_what_it_has_told(
    knowledge: type[SimulatedLauncher],
) -> None:
    """At 1,000 s the first has done 20,000 of 24,000 samples on two nodes: less is left of it than the other
    does in all. By its spec alone it would have more."""
    workload = [
        Submission(at, replace(trainer(samples=samples, n_min=2, n_max=2), costs=RescaleCosts()))
        for at, samples in ((0.0, 24_000), (1000.0, 12_000))
    ]
    changes = intervals.changes([Interval(0.0, 9e3, node) for node in "ab"], frozenset("ab"), 0.0, 9e3)
    chosen = EngineSettings(
        objective="efficiency", weights_by=WeightsBy.WORK, max_parallel=None, ageing_s=None, t_fwd_s=600.0
    )
    simulate: Simulate = knowledge
    if knowledge is MeasuringLauncher:
        simulate = partial(MeasuringLauncher, submissions=workload, noise=0.0, seed=0)
    result = replay(changes, workload, chosen, 0.0, 9e3, simulate=simulate)
    assert [t.turnaround_h * 3600 for t in result.trainers.values()] == pytest.approx([1200.0, 800.0])
    plain = replay(changes, workload, replace(chosen, weights_by=WeightsBy.SPEC), 0.0, 9e3)
    assert result.tally.events == plain.tally.events, "what is told is no event of its own"
