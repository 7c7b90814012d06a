"""Workers die and start again, until their program has failed too often."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from bftrainer.model.actions import Ended, Regroup, StartWorker
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import (
    TrainerStatus,
)
from tests.support.engine_world import World, regroup, starts


def test_a_lost_member_is_regrouped_away_and_started_again() -> None:
    world = World().running("ab")
    step = world.lost(1, "a")
    assert step.plan is None
    assert step.actions == (
        Regroup(trainer=1, generation=3, members=("b",)),
        StartWorker(trainer=1, generation=3, node="a", attempt=0),
    )
    assert world.trainer(1).nodes == {"a", "b"}
    assert regroup(world.ready(1, "a")).members == ("b", "a")  # the survivor is rank 0


def test_when_every_member_is_lost_all_start_again() -> None:
    world = World().running("a")
    assert world.lost(1, "a").actions == (StartWorker(trainer=1, generation=3, node="a"),)
    assert world.trainer(1).status is TrainerStatus.STARTING


def test_a_lost_newcomer_is_started_again() -> None:
    world = World().running("a")
    world.nodes(joined="b")
    assert world.lost(1, "b").actions == (StartWorker(trainer=1, generation=4, node="b"),)
    assert world.ready(1, "b", generation=3).actions == ()  # the dead one's report
    assert regroup(world.ready(1, "b")).members == ("a", "b")


def test_a_program_that_fails_again_and_again_without_progress_is_given_up() -> None:
    world = World(EngineSettings(max_failures=2)).running("a")
    for attempt in (1, 2):
        step = world.lost(1, "a", blame=True, samples=0.0, reason="exit code 3")
        assert [a.attempt for a in step.actions if isinstance(a, StartWorker)] == [attempt]
        assert step.ended is None
    step = world.lost(1, "a", blame=True, samples=0.0, reason="exit code 3")
    assert step.ended == Ended(trainer=1, status=TrainerStatus.FAILED, reason="exit code 3")
    assert world.state.trainers == {}


def test_failures_after_progress_count_anew() -> None:
    world = World(EngineSettings(max_failures=1)).running("a")
    for samples in (10.0, 20.0, 30.0, 40.0):
        assert world.lost(1, "a", blame=True, samples=samples).ended is None
        assert world.trainer(1).failures == 1
    assert world.lost(1, "a", blame=True, samples=40.0).ended is not None


def test_failures_at_samples_that_jitter_count_against_the_best_that_was_reached() -> None:
    world = World(EngineSettings(max_failures=3)).running("a")
    crashes = 0
    for samples in (95.0, 91.0, 94.0, 90.0, 93.0, 92.0):  # reports come a few times a second
        crashes += 1
        if world.lost(1, "a", blame=True, samples=samples, reason="exit code 1").ended is not None:
            break
    assert crashes == 4, "three failures may follow one another without progress, the fourth is the end"


def test_being_killed_is_never_held_against_a_program() -> None:
    world = World(EngineSettings(max_failures=0)).running("a")
    for _ in range(20):
        step = world.lost(1, "a")
        assert step.ended is None
        assert step.actions == (StartWorker(trainer=1, generation=world.trainer(1).generation, node="a"),)
    assert world.trainer(1).failures == 0


def test_failures_of_a_program_free_its_nodes_for_others() -> None:
    world = World(EngineSettings(max_failures=0)).running("ab", weight=5.0)
    world.submit(2)
    step = world.lost(1, "a", blame=True)
    assert step.ended is not None
    assert starts(step) == [(2, "a"), (2, "b")]


def test_one_incident_counts_once_however_many_workers_it_takes() -> None:
    world = World(EngineSettings(max_failures=2)).running("abcd")
    for node in "abcd":
        step = world.lost(1, node, blame=True, samples=100.0)
    assert step.ended is None and world.trainer(1).failures == 1
    for _ in range(2):
        step = world.lost(1, "a", blame=True, samples=100.0)
    assert step.ended is not None and step.ended.status is TrainerStatus.FAILED


def test_a_program_that_fails_again_and_again_with_a_little_progress_is_given_up() -> None:
    world = World(EngineSettings(max_failures_per_h=20)).running("a")
    for samples in range(20):
        world.now += 60.0
        assert world.lost(1, "a", blame=True, samples=float(samples + 1), reason="exit code 1").ended is None
    ended = world.lost(1, "a", blame=True, samples=99.0, reason="exit code 1").ended
    assert ended is not None and ended.status is TrainerStatus.FAILED
    assert ended.reason.startswith("exit code 1; it has failed 21 times within an hour, and 20 are allowed")


@example([(0.0, False), (0.0, False), (596.0, True), (3000.0, False)], 2, 3)
@given(
    st.lists(st.tuples(st.floats(0.0, 3000.0), st.booleans()), max_size=30),
    st.integers(0, 4),
    st.integers(0, 6),
)
def test_a_program_is_given_up_by_either_bound_and_by_nothing_else(
    failures: list[tuple[float, bool]], in_a_row: int, in_an_hour: int
) -> None:
    world = World(EngineSettings(max_failures=in_a_row, max_failures_per_h=in_an_hour)).running("a")
    samples, row, times = 0.0, 0, list[float]()
    for waited_s, has_progress in failures:
        world.now += waited_s
        samples += has_progress
        row = 1 if has_progress else row + 1
        step = world.lost(1, "a", blame=True, samples=samples)
        times.append(world.now)  # the world's clock moves with each event
        recent = sum(world.now - at < 3600.0 for at in times)
        assert (step.ended is not None) == (row > in_a_row or recent > in_an_hour)
        if step.ended is not None:
            return
        assert len(world.trainer(1).failed_at) == recent <= in_an_hour, "what is kept is bounded"
