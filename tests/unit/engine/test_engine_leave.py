"""Nodes leave the pool, by force or given up: what survivors and newcomers do."""

from __future__ import annotations

from bftrainer.model.actions import Regroup, StartWorker, StopWorker
from bftrainer.model.trainer import (
    TrainerStatus,
)
from tests.support.engine_world import World, regroup


def test_survivors_of_a_forced_leave_regroup_at_once() -> None:
    world = World().running("mazn")
    generation = world.trainer(1).generation
    step = world.nodes(left="ax")
    assert regroup(step) == Regroup(trainer=1, generation=generation + 1, members=("m", "z", "n"))
    assert world.trainer(1).nodes == set("mzn")
    assert world.state.pool == set("mzn")


def test_workers_on_vacated_nodes_leave_at_a_step_boundary_and_newcomers_there_stop() -> None:
    world = World().running("abc")
    world.nodes(joined="d")
    step = world.nodes(left="a", vacated="bd")
    assert step.actions == (
        StopWorker(trainer=1, generation=4, node="d"),
        Regroup(trainer=1, generation=4, members=("c",), leaving=("b",)),
    )
    assert world.state.pool == {"c"} and world.trainer(1).nodes == {"c"}


def test_a_trainer_whose_last_nodes_are_vacated_writes_a_checkpoint() -> None:
    world = World().running("ab")
    step = world.nodes(vacated="ab")
    assert regroup(step) == Regroup(trainer=1, generation=3, members=(), leaving=("a", "b"))


def test_a_leave_is_not_delayed_by_a_join_at_the_same_moment() -> None:
    world = World().running("mn")
    step = world.nodes(left="m", joined="a")
    assert step.actions == (
        Regroup(trainer=1, generation=3, members=("n",)),
        StartWorker(trainer=1, generation=3, node="a"),
    )


def test_below_the_minimum_survivors_wait_for_newcomers_without_a_regroup() -> None:
    world = World().running("abc", n_min=3, n_max=3)
    step = world.nodes(left="a", joined="d")
    assert step.actions == (StartWorker(trainer=1, generation=3, node="d"),)
    assert world.trainer(1).members == ("b", "c")
    assert regroup(world.ready(1, "d")).members == ("b", "c", "d")


def test_below_the_minimum_workers_on_vacated_nodes_are_stopped_without_a_regroup() -> None:
    """The survivors keep the state while they wait, so the worker on the vacated node may just go."""
    world = World().running("abc", n_min=3, n_max=3)
    world.nodes(joined="d")
    step = world.nodes(vacated="c")
    assert [(a.node, type(a)) for a in step.actions] == [("c", StopWorker), ("d", StartWorker)]
    assert world.trainer(1).members == ("a", "b")


def test_below_the_minimum_without_replacement_survivors_checkpoint_and_leave() -> None:
    world = World().running("abc", n_min=3, n_max=3)
    assert regroup(world.nodes(left="a")) == Regroup(trainer=1, generation=3, members=(), leaving=("b", "c"))
    assert world.trainer(1).status is TrainerStatus.WAITING
    assert world.trainer(1).nodes == set()


def test_leaving_nodes_of_others_change_nothing() -> None:
    world = World().running("ab", n_max=2)
    world.nodes(joined="cd")
    step = world.nodes(left="d")
    assert step.actions == ()
    assert step.plan is not None  # it was decided anew, to the same
    assert world.nodes(left="x").plan is None
