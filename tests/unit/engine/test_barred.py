"""Trainers of users that get no pilots for a while."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.events import PolicyChanged, UsersBarred
from bftrainer.model.policy import EngineSettings
from tests.support.engine_world import World

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
