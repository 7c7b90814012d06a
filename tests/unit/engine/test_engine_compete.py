"""Trainers compete for nodes: nodes are vacated before others take them, and places are limited."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bftrainer.engine.state import Step
from bftrainer.model.actions import Ended, Regroup, StartWorker, StopWorker
from bftrainer.model.events import (
    PolicyChanged,
    PriorityChanged,
    TrainerCancelled,
)
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import (
    TrainerStatus,
)
from tests.support.engine_world import World, regroup, starts


def test_released_newcomers_are_stopped_before_the_node_is_taken() -> None:
    world = World()
    world.nodes(joined="ab")
    world.submit(1)
    step = world.submit(2, n_max=1, weight=100.0)
    assert step.actions == (
        StopWorker(trainer=1, generation=2, node="b"),
        StartWorker(trainer=2, generation=1, node="b"),
    )
    assert regroup(world.ready(1, "a")).members == ("a",)


def test_released_members_leave_at_a_step_boundary_before_the_node_is_taken() -> None:
    world = World().running("ab")
    step = world.submit(2, n_max=1, weight=100.0)
    assert step.actions == (
        Regroup(trainer=1, generation=3, members=("a",), leaving=("b",)),
        StartWorker(trainer=2, generation=1, node="b"),
    )


def test_a_higher_priority_brings_a_waiting_trainer_to_the_front() -> None:
    world = World(EngineSettings(max_parallel=1))
    world.nodes(joined="a")
    for number in (1, 2, 3, 4):
        world.submit(number, n_max=1)
    world.take(PriorityChanged(time=0.0, trainer=4, to=2.0))
    assert [t.id for t in world.state.waiting] == [4, 2, 3]
    world.take(PriorityChanged(time=0.0, trainer=2, to=0.5))
    assert [t.id for t in world.state.waiting] == [4, 3, 2]
    assert list(world.state.active) == [1], "who has a place keeps it"
    world.take(TrainerCancelled(time=0.0, trainer=1))
    assert list(world.state.active) == [4]
    step = world.take(PriorityChanged(time=0.0, trainer=77, to=2.0))
    assert (step.plan, step.actions) == (None, ())


def test_of_trainers_that_are_alike_the_one_with_the_highest_priority_gets_the_next_node() -> None:
    world = World()
    world.nodes(joined="a")
    for number in (1, 2, 3):
        world.submit(number, n_max=1)
    step = world.take(PriorityChanged(time=0.0, trainer=3, to=5.0))
    assert step.actions == (), "who has the node keeps it"
    step = world.take(TrainerCancelled(time=0.0, trainer=1))
    assert StartWorker(trainer=3, generation=1, node="a") in step.actions


def test_only_the_first_max_parallel_trainers_hold_nodes() -> None:
    world = World(EngineSettings(max_parallel=2))
    world.nodes(joined="abcd")
    world.submit(1, n_max=1)
    world.submit(2, n_max=1)
    step = world.submit(3, n_max=1, weight=1000.0)
    assert (step.actions, step.plan) == ((), None)
    world.submit(4, n_max=1)
    assert list(world.state.active) == [1, 2]
    assert [t.id for t in world.state.waiting] == [3, 4]
    assert world.trainer(3).status is TrainerStatus.WAITING

    step = world.take(TrainerCancelled(time=0.0, trainer=4))  # a waiting one: nothing to decide
    assert step.plan is None
    assert step.ended == Ended(trainer=4, status=TrainerStatus.CANCELLED, reason="cancelled by its user")
    world.submit(5)

    step = world.take(TrainerCancelled(time=0.0, trainer=1))
    assert list(world.state.active) == [2, 3]
    assert [t.id for t in world.state.waiting] == [5]
    assert [trainer for trainer, _ in starts(step)] == [3]


def changed(world: World, **settings: Any) -> Step:
    """The site changes its policy: the state carries the new settings."""
    world.state = replace(world.state, settings=replace(world.state.settings, **settings))
    return world.take(PolicyChanged(time=0.0))


def test_a_new_policy_counts_at_once() -> None:
    world = World(EngineSettings(max_parallel=1))
    world.nodes(joined="abcd")
    for id_ in (1, 2, 3, 4):
        world.submit(id_, n_max=2, user="one")
    assert starts(changed(world, max_parallel=3)) == [(2, "c"), (2, "d")]
    assert list(world.state.active) == [1, 2, 3]
    changed(world, max_parallel=1)
    assert list(world.state.active) == [1, 2, 3], "active trainers go on"
    world.end(1)
    world.end(2)
    assert list(world.state.active) == [3], "but none moves up before there is room"
    world.end(3)
    assert list(world.state.active) == [4]
    assert len(world.held(4)) == 2
    step = changed(world, user_max_nodes=1)
    assert step.plan is not None
    assert len(world.held(4)) == 1


def test_a_trainer_is_submitted_once() -> None:
    world = World().running("ab")
    before = world.state
    assert world.submit(1).actions == ()
    assert world.state == before
