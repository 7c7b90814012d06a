"""New members are published when all workers of their batch are ready, and never before."""

from __future__ import annotations

from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.trainer import (
    TrainerStatus,
)
from tests.support.engine_world import World, regroup, starts


def test_a_new_trainer_starts_workers_and_waits_for_all_of_them() -> None:
    world = World()
    world.nodes(joined="ab")
    step = world.submit(1)
    assert step.actions == tuple(StartWorker(trainer=1, generation=1, node=n) for n in "ab")
    assert step.plan is not None
    assert step.plan.allocation == {1: {"a", "b"}}
    assert world.trainer(1).status is TrainerStatus.STARTING
    assert world.ready(1, "a").actions == ()
    assert regroup(world.ready(1, "b")) == Regroup(trainer=1, generation=2, members=("a", "b"))
    assert (world.trainer(1).generation, world.trainer(1).published) == (2, 2)
    assert world.trainer(1).status is TrainerStatus.RUNNING
    assert world.trainer(1).joining == {}


def test_members_train_on_until_all_newcomers_are_warm_and_keep_their_ranks() -> None:
    world = World().running("mn")
    step = world.nodes(joined="az")
    assert starts(step) == [(1, "a"), (1, "z")]
    assert len(step.actions) == 2
    assert world.trainer(1).members == ("m", "n")
    assert world.ready(1, "z").actions == ()
    assert world.trainer(1).members == ("m", "n")
    last = regroup(world.ready(1, "a"))
    assert last.members == ("m", "n", "a", "z")
    assert last.leaving == ()
    assert world.trainer(1).published == last.generation


def test_batches_are_published_one_by_one() -> None:
    world = World().running("m")
    world.nodes(joined="a")
    world.nodes(joined="b")
    assert regroup(world.ready(1, "b")).members == ("m", "b")
    assert regroup(world.ready(1, "a")).members == ("m", "b", "a")


def test_a_batch_that_loses_its_last_cold_node_is_complete() -> None:
    world = World().running("m")
    world.nodes(joined="ab")
    world.ready(1, "a")
    assert regroup(world.nodes(left="b")).members == ("m", "a")


def test_too_few_warm_workers_are_no_membership_yet() -> None:
    world = World()
    world.nodes(joined="ab")
    world.submit(1, n_min=2)
    assert world.lost(1, "b").actions == (StartWorker(trainer=1, generation=2, node="b"),)
    assert world.ready(1, "a").actions == ()  # its batch is whole, but one node cannot train
    assert regroup(world.ready(1, "b")).members == ("a", "b")
