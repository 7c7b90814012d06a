"""Trainers of users that get no pilots for a while."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.events import PolicyChanged, UsersBarred
from bftrainer.model.policy import EngineSettings
from tests.support.engine_world import CLASSES, World

BARRED = UsersBarred(time=0.0, users={"eve": "its pilots fail"})
NOBODY = UsersBarred(time=0.0, users={})


@pytest.mark.parametrize("limit", [None, 1])
def test_trainers_of_a_barred_user_are_set_aside_and_come_back(limit: int | None) -> None:
    world = World(EngineSettings(max_parallel=limit))
    world.submit(1, user="eve", n_max=4)
    world.submit(2, user="ann", n_max=4)
    world.nodes(joined="ab")
    assert world.held(1)
    world.take(BARRED)
    assert world.held(1) == "" and len(world.held(2)) == 2
    world.submit(3, user="eve", priority=9.0)
    assert len(world.held(2)) == 2
    world.end(2)
    assert not any(t.nodes for t in world.state.active.values())
    world.take(NOBODY)
    assert any(t.nodes for t in world.state.active.values())


@pytest.mark.parametrize("most", [None, 1, 8])
def test_what_a_barred_user_runs_goes_on_but_does_not_grow(most: int | None) -> None:
    world = World(EngineSettings(max_parallel=None)).running("ab", user="eve", n_max=8)
    world.state = replace(world.state, settings=EngineSettings(max_parallel=None, user_max_nodes=most))
    world.take(BARRED)
    world.nodes(joined="cdef")
    assert len(world.held(1)) == min(2, most or 2) and set(world.held(1)) <= set("ab")
    world.take(PolicyChanged(time=0.0))
    assert len(world.held(1)) == min(2, most or 2)
    world.take(NOBODY)
    assert len(world.held(1)) == min(6, most or 6)


def off(user: str, nodes: str) -> UsersBarred:
    return UsersBarred(time=0.0, users={}, nodes={user: frozenset(nodes)} if nodes else {})


@pytest.mark.parametrize("limit", [None, 2])
def test_a_user_that_gets_no_pilots_on_some_nodes_leaves_those_to_others(limit: int | None) -> None:
    world = World(EngineSettings(max_parallel=limit))
    world.submit(1, user="eve", n_max=8, weight=9.0)
    world.submit(2, user="ann", n_max=8)
    world.take(off("eve", "ab"))
    world.nodes(joined="abcd")
    assert world.held(1) == "cd" and world.held(2) == "ab"
    world.take(off("eve", ""))
    assert world.held(1) == "abcd", "it is worth more there again"


def test_a_node_on_which_its_user_gets_no_pilots_is_given_up_unless_the_trainer_runs_there() -> None:
    world = World(EngineSettings(max_parallel=None)).running("a", user="eve", n_max=8, weight=9.0)
    world.submit(2, user="ann", n_max=8)
    world.nodes(joined="b")
    assert world.held(1) == "ab"
    world.take(off("eve", "ab"))
    assert world.held(1) == "a" and world.held(2) == "b"


def test_nodes_that_no_trainer_of_a_plan_can_use_go_to_another_that_can() -> None:
    world = World(EngineSettings(max_parallel=None)).running("abc", user="ann", n_max=3, weight=9.0)
    world.take(off("eve", "def"))
    world.submit(2, user="eve", n_min=3, n_max=3, weight=3.0)
    world.submit(3, user="bob", n_max=3)
    step = world.nodes(joined="def")
    assert (world.held(1), world.held(2), world.held(3)) == ("abc", "", "def")
    assert step.plan and step.plan.counts[3] == 3, "the plan says what is done"


def test_nodes_in_classes_keep_users_off_as_well() -> None:
    world = World(CLASSES)
    world.submit(1, user="eve", n_max=8, weight=9.0)
    world.submit(2, user="ann", n_max=8)
    world.take(off("eve", "ab"))
    world.nodes(joined="abc")
    assert world.held(1) in ("", "c") and set(world.held(2)) & set("ab")
