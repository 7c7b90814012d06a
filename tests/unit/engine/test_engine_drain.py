"""Drain, resume, memberships that are published anew, and polls that fail."""

from __future__ import annotations

from bftrainer.model.actions import Regroup, StopWorker
from bftrainer.model.events import (
    Drain,
    PollFailed,
    Resume,
    Resync,
)
from bftrainer.model.trainer import (
    TrainerStatus,
)
from tests.support.engine_world import World, regroup, starts


def test_drain_takes_every_node_with_a_checkpoint_and_gives_none() -> None:
    world = World().running("ab")
    world.nodes(joined="c")
    step = world.take(Drain(time=0.0))
    assert step.actions == (
        StopWorker(trainer=1, generation=4, node="c"),
        Regroup(trainer=1, generation=4, members=(), leaving=("a", "b")),
    )
    assert world.trainer(1).status is TrainerStatus.WAITING
    for later in (world.nodes(joined="d"), world.submit(2), world.nodes(left="a")):
        assert later.actions == ()
    assert world.state.draining
    assert world.state.pool == set("bcd")


def test_after_resume_nodes_are_given_again() -> None:
    world = World().running("ab")
    assert world.take(Resume(time=0.0)).plan is None  # nothing was drained
    world.take(Drain(time=0.0))
    step = world.take(Resume(time=0.0))
    assert starts(step) == [(1, "a"), (1, "b")]
    assert not world.state.draining


def test_resync_publishes_the_same_members_anew() -> None:
    world = World().running("mab")
    old = world.trainer(1)
    step = world.take(Resync(time=0.0, trainer=1, generation=old.published))
    assert regroup(step) == Regroup(trainer=1, generation=old.generation + 1, members=("m", "a", "b"))
    assert step.plan is None
    assert world.trainer(1).published == old.generation + 1
    assert world.take(Resync(time=0.0, trainer=1, generation=old.published)).actions == ()  # done already
    world = World()
    world.nodes(joined="a")
    world.submit(1)
    assert world.take(Resync(time=0.0, trainer=1, generation=0)).actions == ()  # it has no members


def test_a_failed_poll_changes_nothing() -> None:
    world = World().running("ab")
    before = world.state
    step = world.take(PollFailed(time=0.0, reason="timeout"))
    assert (step.actions, step.plan, world.state) == ((), None, before)
