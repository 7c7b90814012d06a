"""Users share the pool by weights, and what one cannot use goes to the others."""

from __future__ import annotations

import pytest

from bftrainer.engine.shares import divided
from bftrainer.model.policy import EngineSettings
from tests.support.engine_world import World


def test_the_pool_is_divided_by_weights_up_to_what_each_demands() -> None:
    weights = {"a": 2.0, "b": 1.0, "c": 1.0}
    assert divided(16, {"a": 99, "b": 99, "c": 99}, weights) == {"a": 8, "b": 4, "c": 4}
    assert divided(16, {"a": 2, "b": 99, "c": 99}, weights) == {"a": 2, "b": 7, "c": 7}
    assert divided(16, {"a": 99, "b": 1, "c": 99}, weights) == {"a": 10, "b": 1, "c": 5}
    assert divided(16, {"a": 1, "b": 2, "c": 3}, weights) == {"a": 1, "b": 2, "c": 3}
    assert divided(0, {"a": 1}, weights) == {"a": 0}


def held(world: World, *trainers: int) -> int:
    return sum(len(world.held(id_)) for id_ in trainers)


@pytest.mark.parametrize("max_parallel", [20, None])
def test_two_users_with_many_trainers_share_by_their_weights(max_parallel: int | None) -> None:
    shares = {"ann": 3.0, "others": 1.0}
    world = World(EngineSettings(max_parallel=max_parallel, user_shares=shares))
    world.nodes(joined="abcdefghijkl")
    for id_ in range(1, 7):
        world.submit(id_, user="ann", rate=1.0, n_max=4)
    for id_ in range(7, 13):
        world.submit(id_, user="bob", rate=50.0, n_max=4)  # the objective alone would give it all
    assert held(world, *range(1, 7)) == 9
    assert held(world, *range(7, 13)) == 3


def test_a_user_with_one_trainer_gets_its_share_beside_one_with_many() -> None:
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="abcdefgh")
    for id_ in range(1, 30):
        world.submit(id_, user="ann", rate=50.0, n_max=4)
    world.submit(99, user="bob", rate=1.0, n_max=2)
    assert held(world, 99) == 2
    assert held(world, *range(1, 30)) == 6, "what bob cannot use is ann's"
    world.end(99)
    assert held(world, *range(1, 30)) == 8


def test_a_share_that_is_too_small_for_a_trainer_still_lets_it_compete() -> None:
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0, "bob": 0.01}))
    world.nodes(joined="abcdefgh")
    world.submit(1, user="bob", rate=50.0, n_min=4, n_max=4)
    world.submit(2, user="ann", rate=1.0, n_max=8)
    assert held(world, 1) == 4
