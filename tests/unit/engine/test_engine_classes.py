"""Nodes of several classes: no trainer mixes them, and none changes its class."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.engine.question import problem_of
from bftrainer.model.events import (
    NodesChanged,
)
from bftrainer.model.machine import NodeInfo
from tests.support.engine_world import CLASSES, World

FASTER = (("fat", ((4, 400.0),)),)


def test_no_trainer_mixes_classes_and_nodes_of_no_class_are_one_more() -> None:
    world = World(CLASSES)
    world.nodes(joined="acexyz")
    world.submit(1)
    assert world.held(1) == "exyz"
    world.submit(2)
    assert world.held(2) in ("a", "c")
    world.nodes(joined="bd")
    assert world.held(1) == "exyz"
    assert world.held(2) in ("ab", "cd")


@pytest.mark.parametrize("objective_", ["throughput", "efficiency", "priority", "throughput+efficiency"])
def test_a_curve_of_its_own_makes_a_class_the_better_one(objective_: str) -> None:
    world = World(replace(CLASSES, objective=objective_))
    world.nodes(joined="abcdwxyz")
    world.submit(1, n_max=4, curves=FASTER)
    assert world.held(1) == "ab"  # 200/s there, and 4/s on the four of no class
    world.submit(2, n_max=4)
    assert world.held(2) == "wxyz"


def test_an_empty_curve_keeps_a_trainer_off_a_class() -> None:
    world = World(CLASSES)
    world.nodes(joined="abc")
    world.submit(1, curves=(("fat", ()),))
    assert world.held(1) == "c"
    world.submit(2, curves=(("fat", ()), ("thin", ())))
    assert world.held(2) == ""


def test_who_holds_nodes_does_not_change_to_a_better_class() -> None:
    world = World(CLASSES)
    world.nodes(joined="cd")
    world.submit(1, curves=FASTER)
    assert world.nodes(joined="ab").actions == ()
    assert world.held(1) == "cd"
    world.nodes(left="cd")  # now it holds nothing
    assert world.held(1) == "ab"


def test_a_node_stays_of_its_class_and_group_whatever_else_becomes_known_of_it() -> None:
    world = World(replace(CLASSES, departure_groups="joined"))
    world.nodes(joined="ac")
    world.submit(1, n_max=4)
    held = world.held(1)
    before = world.state.node_info
    assert before == {
        "a": NodeInfo(node_class="fat", group="joined 0.0"),
        "c": NodeInfo(node_class="thin", group="joined 0.0"),
    }
    world.expect({"a": 5_000.0, "c": 6_000.0})
    assert world.state.node_info["a"] == NodeInfo(node_class="fat", group="joined 0.0", until=5_002.0)
    assert world.held(1) == held
    world.expect({"a": None, "c": None})
    assert world.state.node_info == before
    world.expect({"b": 5_000.0}, joined="b")
    assert world.state.node_info["b"] == NodeInfo(node_class="fat", group="joined 4.0", until=5_004.0)
    world.take(NodesChanged(time=0.0, left=frozenset("b"), joined=frozenset("b")))
    assert world.state.node_info["b"] == NodeInfo(node_class="fat", group="joined 5.0")
    world.nodes(left="abc")
    assert world.state.node_info == {}
    world.expect({"x": 9.0})  # not ours
    assert world.state.node_info == {}


def test_where_nothing_tells_nodes_apart_nothing_is_kept_of_them() -> None:
    world = World()
    world.nodes(joined="abc")
    assert world.state.node_info == {}
    world.submit(1)
    question, parts = problem_of(world.state, (world.trainer(1),), 5.0)
    assert (question.groups, parts) == ((), ())
