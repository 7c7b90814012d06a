"""Reports of an earlier generation, and what is no event, change nothing."""

from __future__ import annotations

import pytest

from bftrainer.model.events import (
    Measured,
    TrainerEnded,
    WorkerLost,
    WorkersReady,
)
from tests.support.engine_world import World, regroup, starts, step_of


def test_reports_of_another_generation_are_refused() -> None:
    world = World().running("ab")
    world.nodes(joined="c")
    now = world.trainer(1)
    assert (now.published, now.joining) == (2, {"c": 3})
    before = world.state
    for event in (
        WorkersReady(time=0.0, trainer=1, generation=2, nodes=frozenset("c")),
        WorkersReady(time=0.0, trainer=1, generation=4, nodes=frozenset("c")),
        WorkersReady(time=0.0, trainer=1, generation=3, nodes=frozenset("ax")),
        TrainerEnded(time=0.0, trainer=1, generation=3),  # of no membership that was ever published
        Measured(time=0.0, trainer=1, generation=1, point=(2, 5.0)),
        WorkerLost(time=0.0, trainer=1, node="a", generation=4),
        WorkerLost(time=0.0, trainer=1, node="c", generation=2),
        WorkerLost(time=0.0, trainer=1, node="x", generation=2),
    ):
        step = world.take(event)
        assert (step.actions, step.plan, step.ended) == ((), None, None), event
        assert world.state == before, event


def test_a_loss_that_is_reported_twice_does_not_touch_the_replacement() -> None:
    world = World().running("ab")
    report = WorkerLost(time=0.0, trainer=1, node="b", generation=1)  # the generation that started it
    assert starts(world.take(report)) == [(1, "b")]
    assert regroup(world.ready(1, "b")).members == ("a", "b")
    assert world.take(report).actions == ()
    assert world.trainer(1).members == ("a", "b")


def test_strangers_are_refused() -> None:
    with pytest.raises(TypeError, match="not an event"):
        step_of(World().state, "node gone")  # type: ignore[arg-type]
