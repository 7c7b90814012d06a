"""Why a trainer waits, in words for its user."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.engine.queueing.waiting import Shortage, why_queued
from bftrainer.model.events import Drain, MachineChanged, UsersBarred
from bftrainer.model.policy import EngineSettings
from tests.support.engine_world import CLASSES, World, make_spec


def why(world: World, trainer: int) -> str:
    return Shortage.of(world.state).why(world.trainer(trainer))


def test_who_holds_the_nodes_is_told_by_name_to_their_own_user() -> None:
    world = World().running("abc", name="long", n_min=3, n_max=3, user="ann", weight=9.0)
    world.nodes(joined="de")
    world.submit(2, n_min=3, user="ann")
    assert why(world, 2) == "needs 3 nodes, 2 free: held by long (3 nodes)"
    world.submit(3, n_min=3, user="bob")
    assert why(world, 3) == "needs 3 nodes, 2 free: held by a trainer of another user"


def test_nodes_that_are_not_there_are_held_by_nobody() -> None:
    world = World()
    world.submit(1, n_min=3)
    assert why(world, 1) == "needs 3 nodes, and none of the machine's can be had now"
    world.nodes(joined="ab")
    assert why(world, 1) == "needs 3 nodes, and only 2 of the machine's can be had now"


def test_what_can_never_run_is_told_before_all_else() -> None:
    world = World()
    world.take(MachineChanged(time=0.0, nodes={"": 3}))
    world.submit(1, n_min=4)
    assert why(world, 1) == "can never run: needs at least 4 nodes; this machine has 3"


def test_a_class_that_a_trainer_cannot_use_is_no_help() -> None:
    world = World(CLASSES)
    world.nodes(joined="abcd")
    world.submit(1, n_min=3, curves=(("fat", ()),))
    assert why(world, 1) == "needs 3 nodes, and only 2 of the machine's can be had now"


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (EngineSettings(max_parallel=1), "all 1 places are taken (max_parallel)"),
        (
            EngineSettings(user_max_nodes=2),
            "needs 1 node; its user's trainers hold 2 of at most 2 (user_max_nodes)",
        ),
    ],
)
def test_a_bound_of_the_site_is_told(policy: EngineSettings, reason: str) -> None:
    world = World(policy).running("ab", n_min=2, n_max=2, weight=9.0)
    world.nodes(joined="cd")
    world.submit(2)
    assert not world.trainer(2).nodes
    assert why(world, 2) == reason


def test_a_user_without_pilots_and_a_site_that_drains_are_told() -> None:
    world = World()
    world.submit(1, user="ann")
    world.take(UsersBarred(time=0.0, users={"ann": "4 of its pilots failed"}))
    assert why(world, 1) == "its user gets no pilots for a while: 4 of its pilots failed"
    world.take(UsersBarred(time=0.0, users={}))
    world.take(Drain(time=0.0))
    assert why(world, 1).startswith("the site gives nodes to no trainer")


def test_a_submission_is_told_only_what_no_plan_can_change() -> None:
    world = World().running("ab")
    assert why_queued(world.state, 9, make_spec(n_min=2), 0.0) == "", "its nodes may come from the other"
    assert "only 2 of the machine" in why_queued(world.state, 9, make_spec(n_min=3), 0.0)


def test_nodes_that_a_plan_has_left_free_are_said_to_be_free() -> None:
    world = World()
    world.nodes(joined="ab")
    world.submit(1, n_min=1, n_max=1)
    idle = replace(world.trainer(1), id=7, nodes=frozenset())
    assert (
        Shortage.of(world.state).why(idle)
        == "needs 1 node, 1 free: the last plan gave it none, see bftrainer events"
    )


def remedy(world: World, trainer: int) -> str:
    return Shortage.of(world.state).remedy(world.trainer(trainer))


def test_what_would_make_it_run_is_told_with_what_is_missing() -> None:
    world = World().running("abc", name="long", n_min=3, n_max=3, user="ann", weight=9.0)
    world.nodes(joined="de")
    world.submit(2, n_min=3, user="ann")
    assert remedy(world, 2) == (
        "another trainer ends or gives up 1 node (bftrainer priority makes it the first of those that wait); "
        "or a higher weight in its spec"
    )
    by_priority = Shortage.of(replace(world.state, settings=EngineSettings(objective="0.5*priority")))
    assert by_priority.remedy(world.trainer(2)).endswith("; or a higher priority, or weight in its spec")
    world.submit(3, n_min=7, user="ann")
    assert remedy(world, 3) == "2 nodes more become idle"
    world.take(MachineChanged(time=0.0, nodes={"": 5}))
    assert remedy(world, 3) == "ask for fewer nodes: lower nodes.min, or its sizes"
    world.take(Drain(time=0.0))
    assert remedy(world, 2) == "an admin says bftrainer admin resume"


def test_a_bound_of_the_site_is_what_has_to_give_way() -> None:
    world = World(EngineSettings(user_max_nodes=2))
    world.nodes(joined="abcd")
    world.submit(1, user="ann", n_max=2)
    world.submit(2, user="ann", n_min=2, n_max=2)
    waits = 1 if not world.held(1) else 2
    assert "its user's other trainers give up" in remedy(world, waits)
    world = World(EngineSettings(max_parallel=1))
    world.nodes(joined="ab")
    world.submit(1, user="ann")
    world.submit(2, user="ann")
    assert remedy(world, 2) == (
        "a trainer with a place ends (bftrainer priority makes it the first of those that wait), or an admin "
        "raises max_parallel"
    )


def test_a_user_that_holds_its_whole_share_is_told_that_no_others_nodes_come() -> None:
    world = World(EngineSettings(user_shares={"others": 1.0}))
    world.nodes(joined="abcd")
    for id_, user in ((1, "bob"), (2, "ann"), (3, "ann")):
        world.submit(id_, user=user, n_min=2, n_max=2)
    waits = 2 if not world.held(2) else 3
    assert why(world, waits) == "needs 2 nodes, 0 free; its user holds 2 of a share of 2 nodes (user_shares)"
    assert remedy(world, waits) == (
        "another trainer of its user ends (bftrainer priority makes it the first of those that wait), or "
        "other users want fewer"
    )


def test_nodes_that_come_are_not_enough_where_the_share_of_the_user_is_used() -> None:
    world = World(EngineSettings(user_shares={"others": 1.0}))
    world.nodes(joined="abcd")
    for id_, user in ((1, "bob"), (2, "ann")):
        world.submit(id_, user=user, n_min=2, n_max=2)
    world.submit(3, user="ann", n_min=6)
    assert remedy(world, 3) == (
        "2 nodes more become idle, and another trainer of its user ends (bftrainer priority makes it the "
        "first of those that wait), or other users want fewer"
    )
