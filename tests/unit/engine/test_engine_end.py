"""A trainer ends, by its user or by itself, and its nodes serve the others."""

from __future__ import annotations

from bftrainer.model.actions import Ended, Regroup, StartWorker, StopWorker
from bftrainer.model.events import (
    Measured,
    Resync,
    TrainerCancelled,
    TrainerEnded,
    WorkerLost,
    WorkersReady,
)
from bftrainer.model.trainer import (
    TrainerStatus,
)
from tests.support.engine_world import World, regroup


def test_cancelling_dissolves_members_and_newcomers_and_serves_the_others() -> None:
    world = World().running("ab", weight=5.0)
    world.nodes(joined="c")
    assert world.submit(2, n_min=3).actions == ()
    step = world.take(TrainerCancelled(time=0.0, trainer=1))
    assert step.actions == (
        StopWorker(trainer=1, generation=4, node="c"),
        Regroup(trainer=1, generation=4, members=(), leaving=("a", "b")),
        *(StartWorker(trainer=2, generation=1, node=n) for n in "abc"),
    )
    assert step.ended is not None
    assert step.ended.status is TrainerStatus.CANCELLED
    assert list(world.state.trainers) == [2]


def test_members_report_the_end() -> None:
    world = World().running("ab")
    published = world.trainer(1).published
    event = TrainerEnded(time=0.0, trainer=1, generation=published, reason="all samples done")
    step = world.take(event)
    assert step.ended == Ended(trainer=1, status=TrainerStatus.COMPLETED, reason="all samples done")
    assert regroup(step).leaving == ("a", "b")
    assert world.state.trainers == {}
    assert world.take(event).ended is None


def test_the_end_counts_although_a_node_left_while_it_was_told() -> None:
    world = World().running("ab")
    published = world.trainer(1).published
    world.submit(2, n_min=2)
    assert regroup(world.nodes(left="b")).members == ("a",), "nothing runs on a: its worker ended before"
    step = world.take(TrainerEnded(time=0.0, trainer=1, generation=published))
    assert step.ended is not None and step.ended.status is TrainerStatus.COMPLETED
    assert list(world.state.active) in ([], [2]) and 1 not in world.state.trainers


def test_events_of_unknown_trainers_change_nothing() -> None:
    world = World().running("ab")
    before = world.state
    for event in (
        TrainerCancelled(time=0.0, trainer=9),
        TrainerEnded(time=0.0, trainer=9, generation=0),
        WorkerLost(time=0.0, trainer=9, node="a", generation=0),
        WorkersReady(time=0.0, trainer=9, generation=0, nodes=frozenset("a")),
        Measured(time=0.0, trainer=9, generation=0, point=(1, 1.0)),
        Resync(time=0.0, trainer=9, generation=0),
    ):
        assert world.take(event).actions == ()
        assert world.state == before
