"""Trainers that take turns on the same nodes: who, when, and when no more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from bftrainer.engine.pairs import LEAST_GAIN, expected, hosts_of, words_of
from bftrainer.model.events import Measured
from bftrainer.model.trainer import DeviceUse, Trainer
from bftrainer.store.rows import of_engine
from tests.support.engine_world import World, regroup, starts

GB = 10**9
HALF = DeviceUse(step_s=1.0, held_s=0.5, waited_s=0.0, peak=GB, memory=16 * GB)
"""Of a trainer that computes for half of each step."""


def world_of(nodes: str = "a", guest: dict[str, Any] | None = None, **changes: Any) -> World:
    """Trainer 1 trains on all `nodes`, and 2 waits; both want to take turns."""
    world = World().running(nodes, takes_turns=True, n_min=len(nodes), n_max=len(nodes), **changes)
    own = {"n_min": len(nodes), "n_max": len(nodes), "takes_turns": True, "memory": GB, **(guest or {})}
    world.submit(2, **own)
    assert not world.trainer(2).nodes
    return world


def measured(world: World, trainer: int, use: DeviceUse | None, rate: float = 1.0) -> Any:
    t = world.trainer(trainer)
    point = (len(t.members), rate)
    return world.take(Measured(time=0.0, trainer=trainer, generation=t.published, point=point, use=use))


def test_a_trainer_that_waits_gets_the_nodes_of_one_that_leaves_them_idle_half_the_time() -> None:
    world = world_of("ab")
    step = measured(world, 1, HALF)
    assert starts(step) == [(2, "a"), (2, "b")]
    assert world.held(1) == world.held(2) == "ab"
    assert step.plan is not None and "take turns (gain 2.00)" in step.plan.note
    assert regroup(world.ready(2, "ab")).members == ("a", "b")
    assert world.trainer(1).members == ("a", "b"), "it has not noticed"


@pytest.mark.parametrize(
    ("guest", "use"),
    [
        ({"takes_turns": False}, HALF),
        ({"user": "another"}, HALF),
        ({"memory": 0}, HALF),
        ({"memory": 15 * GB}, HALF),
        ({"workers": 2}, HALF),
        ({}, replace(HALF, memory=0)),
        ({}, replace(HALF, held_s=0.99)),
        ({}, None),
    ],
    ids=[
        "has not asked",
        "of another user",
        "memory not known",
        "does not fit",
        "other workers",
        "memory of devices not known",
        "always computes",
        "nothing measured",
    ],
)
def test_nobody_is_placed_beside_a_trainer(guest: dict[str, Any], use: DeviceUse | None) -> None:
    world = world_of(guest=guest)
    measured(world, 1, use)
    assert not world.trainer(2).nodes


def paired() -> World:
    world = world_of()
    measured(world, 1, HALF)
    world.ready(2, "a")
    assert world.trainer(2).members == ("a",)
    return world


def beside(other: int, waited_s: float) -> DeviceUse:
    return replace(HALF, step_s=1.0 + waited_s, waited_s=waited_s, beside=other)


def test_a_pair_that_is_measured_to_gain_is_kept() -> None:
    world = paired()
    measured(world, 1, beside(2, 0.3), rate=0.7)
    measured(world, 2, beside(1, 0.3))
    assert world.trainer(1).shared == {2: pytest.approx(0.7)}
    assert world.trainer(2).shared == {1: pytest.approx(1.0 / 1.3)}
    assert world.held(1) == world.held(2) == "a"
    assert "70% of its speed alone, and the other 77%" in words_of(world.trainer(1), world.state.active)


def test_turns_are_taken_away_where_they_gain_nothing_and_not_given_again() -> None:
    world = paired()
    measured(world, 1, beside(2, 1.0), rate=0.5)
    step = measured(world, 2, beside(1, 1.0))
    assert world.held(1) == "a" and not world.trainer(2).nodes
    assert any(getattr(action, "leaving", ()) == ("a",) for action in step.actions)
    measured(world, 1, HALF)
    assert not world.trainer(2).nodes
    assert "gained too little" in words_of(world.trainer(1), world.state.active)


def test_a_restarted_daemon_knows_what_turns_gained() -> None:
    world = paired()
    measured(world, 1, beside(2, 1.0), rate=0.5)
    trainer = world.trainer(1)
    row = json.loads(json.dumps(of_engine(trainer)))
    known = TypeAdapter(Trainer).validate_python({**row, "id": 1, "spec": trainer.spec, "submitted_at": 0.0})
    assert (known.use, known.shared) == (trainer.use, {2: pytest.approx(0.5)})


def test_a_speed_by_turns_says_nothing_of_the_speed_alone() -> None:
    world = paired()
    before = world.trainer(1).observed
    measured(world, 1, beside(2, 0.2), rate=0.8)
    assert world.trainer(1).observed == before


def test_the_other_keeps_its_nodes_when_one_of_a_pair_ends_or_grows_where_there_is_room() -> None:
    world = paired()
    world.end(1)
    assert world.held(2) == "a"
    world.submit(3, n_max=1, takes_turns=True, memory=GB)
    assert not world.trainer(3).nodes, "nothing is known yet of how 2 computes by itself"


def test_a_node_that_leaves_leaves_both() -> None:
    world = world_of("ab")
    measured(world, 1, HALF)
    world.ready(2, "ab")
    world.nodes(left="b")
    assert set(world.held(1)) <= {"a"} and set(world.held(2)) <= {"a"}


def test_trainers_get_nodes_of_their_own_where_there_are_enough() -> None:
    world = paired()
    measured(world, 1, beside(2, 0.4), rate=0.7)
    measured(world, 2, beside(1, 0.4))
    assert world.held(2) == "a"
    world.nodes(joined="b")
    assert {world.held(1), world.held(2)} == {"a", "b"}, "a whole node gives more than a part of one"
    assert not hosts_of(world.state.active)


SECONDS = st.floats(0.01, 10.0)


@given(SECONDS, SECONDS, SECONDS, SECONDS)
def test_no_more_is_expected_than_the_device_and_each_step_allow(
    a: float, b: float, x: float, y: float
) -> None:
    one = replace(HALF, step_s=a + x, held_s=a)
    other = replace(HALF, step_s=b + y, held_s=b)
    speeds = expected(one, other)
    assert all(0.0 < speed <= 1.0 for speed in speeds)
    busy = speeds[0] * a / (a + x) + speeds[1] * b / (b + y)
    assert busy <= 1.0 + 1e-9, "a device computes for one at a time"
    if x == y == 0.0 and a == b:
        assert sum(speeds) == pytest.approx(1.0) and sum(speeds) < LEAST_GAIN
