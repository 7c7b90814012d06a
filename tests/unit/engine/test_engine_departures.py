"""Nodes that are expected to leave, together or at a known time."""

from __future__ import annotations

import pytest

from bftrainer.engine.question import problem_of
from bftrainer.model.events import (
    NodesChanged,
)
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import (
    Cost,
    RescaleCosts,
)
from tests.support.engine_world import World, starts

DEPARTING = RescaleCosts(up=Cost(stall_s=0.5, init_s=5.0), down=Cost(stall_s=5.0))


@pytest.mark.parametrize(
    ("groups", "taken"), [("none", {"m1", "n1"}), ("joined", {"m1", "n2"}), ("cabinet", {"n1", "n2"})]
)
def test_with_equal_values_a_trainer_takes_nodes_that_leave_together(groups: str, taken: set[str]) -> None:
    """Neighbours in name order, those that came together, or those of one cabinet."""
    world = World(EngineSettings(departure_groups=groups))
    for batch in ({"m1", "n2"}, {"n1"}):
        world.take(NodesChanged(time=0.0, joined=frozenset(batch)))
    step = world.submit(1, n_max=2, costs=DEPARTING)
    assert world.trainer(1).nodes == taken
    assert step.plan is not None
    assert step.plan.proven


def test_a_group_is_expected_to_leave_as_often_as_nodes_of_its_age_have_left() -> None:
    world = World(EngineSettings(departure_groups="joined", t_fwd_s=60.0))
    for _ in range(500):  # nodes stay for a second
        world.nodes(joined="x")
        world.nodes(left="x")
    world.nodes(joined="ab")
    (group,) = problem_of(world.state, (), world.now)[0].groups
    assert group.size == 2
    assert group.departures > 0.9
    (group,) = problem_of(world.state, (), world.now + 10_000.0)[0].groups
    assert group.departures < 0.1


def test_a_group_is_as_old_as_its_oldest_node() -> None:
    """What has stayed for long stays: a node that joins it later does not make the group young again."""
    world = World(EngineSettings(departure_groups="cabinet", t_fwd_s=60.0))
    for _ in range(500):  # nodes stay for a second
        world.nodes(joined="x")
        world.nodes(left="x")
    world.take(NodesChanged(time=0.0, joined=frozenset({"m1"})))
    world.now += 10_000.0
    world.take(NodesChanged(time=0.0, joined=frozenset({"m2", "n1"})))
    groups = {group.size: group for group in problem_of(world.state, (), world.now)[0].groups}
    assert groups[2].departures < 0.1  # m1 and m2
    assert groups[1].departures > 0.9  # n1


def test_nodes_of_no_departure_group_are_not_charged_for_leaving() -> None:
    world = World(EngineSettings(t_fwd_s=60.0))
    for _ in range(500):  # nodes stay for a second
        world.nodes(joined="x")
        world.nodes(left="x")
    world.expect({"a": 30.0}, joined="ab")
    groups = problem_of(world.state, (), world.now)[0].groups
    assert [group.departures for group in groups] == [0.0, 0.0]


def test_a_node_that_leaves_in_a_moment_is_not_worth_a_rescale() -> None:
    costs = RescaleCosts(up=Cost(stall_s=0.5, init_s=1.0), down=Cost(stall_s=0.5))
    world = World().running("a", costs=costs)
    assert world.expect({"b": 5.0}, joined="b").actions == ()
    assert world.expect({"c": -5.0}, joined="c").actions == ()  # it should have left already
    assert starts(world.expect({"d": 100.0}, joined="d")) == [(1, "d")]
    assert starts(world.expect({"b": 500.0})) == [(1, "b")]  # said later
    assert starts(world.expect({"c": None})) == [(1, "c")]


def test_nodes_that_should_have_left_are_kept_while_they_are_there() -> None:
    world = World().running("abc", costs=DEPARTING)
    assert world.expect({"a": 3.0, "b": -3.0}).actions == ()
    assert world.held(1) == "abc"


def test_of_nodes_that_leave_soon_and_late_the_late_ones_are_taken() -> None:
    world = World()
    world.expect({"a": 40.0, "b": 80.0, "c": None, "d": 1_000.0}, joined="abcd")
    world.submit(1, n_max=2)
    assert world.held(1) == "cd"
    world.submit(2, n_max=1)
    assert world.held(2) == "b"
