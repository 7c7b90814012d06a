"""Trainers whose workers each need a GPU, and nodes that have fewer."""

from __future__ import annotations

import pytest

from bftrainer.engine.gpus.too_few import kept_off
from bftrainer.engine.queueing.waiting import why_queued
from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.events import GpusChanged, MachineChanged
from bftrainer.model.policy import EngineSettings
from tests.support.engine_world import CLASSES, World

ALL = EngineSettings(max_parallel=None)


def gpus(told: dict[str, dict[str, int | None]] | None = None, **nodes: int) -> GpusChanged:
    return GpusChanged(time=0.0, nodes=nodes, told=told or {})


@pytest.mark.parametrize("settings", [ALL, EngineSettings(max_parallel=2)], ids=["all", "two"])
def test_a_trainer_gets_the_nodes_that_have_a_gpu_for_each_worker_and_others_get_the_rest(
    settings: EngineSettings,
) -> None:
    world = World(settings)
    world.take(gpus(a=2, b=4, c=4, d=0))
    world.submit(1, n_max=8, weight=9.0, workers=4)
    world.submit(2, n_max=8, workers=2)
    world.nodes(joined="abcd")
    assert world.held(1) == "bcd" and world.held(2) == "a", "where there are none, the CPU does"
    assert kept_off(world.state.gpus, world.trainer(1).spec, world.state.pool) == (
        "it asks for 4 workers a node (nodes.workers), and is kept off nodes with fewer GPUs: a (2)"
    )


def test_a_class_whose_nodes_are_all_too_small_is_none_for_it() -> None:
    world = World(CLASSES)
    world.take(gpus(a=2, b=2, c=4))
    world.submit(1, n_max=8, weight=9.0, workers=4)
    world.submit(2, n_max=8, workers=2)
    world.nodes(joined="abcd")
    assert world.held(1) == "cd" and world.held(2) == "ab"


@pytest.mark.parametrize("user", ["", "ann", "eve"])
def test_a_node_whose_agent_says_too_few_is_given_up_before_its_worker_starts(user: str) -> None:
    """It counts for the trainers of the agent's user, as it may say what it likes."""
    world = World(ALL)
    world.submit(1, n_max=8, workers=4, user="ann")
    world.submit(2, n_max=8, workers=2, user="ann", weight=0.1)
    world.nodes(joined="ab")
    assert world.held(1) == "ab"
    step = world.take(gpus(told={user: {"a": 3}}))
    if user == "eve":
        assert world.held(1) == "ab" and not step.actions
        return
    assert world.held(1) == "b" and world.held(2) == "a"
    assert world.trainer(1).failures == 0
    world.take(gpus(told={user: {"b": 4}}))
    assert world.held(1) == "b", "it still counts"
    world.end(2)
    world.take(gpus(told={user: {"a": None}}))
    assert world.held(1) == "ab" and world.state.gpus.told == {user: {"b": 4}}, "the next pilot may have more"


def test_what_runs_goes_on_and_a_worker_that_is_lost_there_starts_elsewhere_without_blame() -> None:
    world = World(ALL).running("ab", n_max=2, workers=4)
    step = world.take(gpus(a=3))
    assert world.trainer(1).members == ("a", "b") and not step.actions
    world.nodes(joined="c")
    step = world.lost(1, "a", blame=True)
    assert world.held(1) == "bc" and world.trainer(1).failures == 0
    assert [(a.node, a.attempt) for a in step.actions if isinstance(a, StartWorker)] == [("c", 0)]
    assert [(a.members, a.leaving) for a in step.actions if isinstance(a, Regroup)] == [(("b",), ())]


def test_a_trainer_that_no_node_can_seat_can_never_run_and_takes_no_place() -> None:
    world = World(EngineSettings(max_parallel=1))
    world.take(MachineChanged(time=0.0, nodes={"": 4}, gpus={"": {2: 2, 4: 2}}))
    world.take(gpus(a=2, b=2, c=4, d=4))
    world.nodes(joined="abcd")
    world.submit(1, workers=8, user="eve")
    world.submit(2, n_min=3, workers=4, user="eve")
    world.submit(3, n_max=1, workers=4, user="eve")
    assert world.held(3) == "c"
    whys = [why_queued(world.state, i, world.trainer(i).spec, 0.0) for i in (1, 2)]
    assert whys == [
        "can never run: needs at least 1 node with 8 GPUs, one for each worker (nodes.workers); "
        "no node has more than 4",
        "can never run: needs at least 3 nodes with 4 GPUs, one for each worker (nodes.workers); "
        "2 of this machine's have so many",
    ]
    world.take(MachineChanged(time=0.0, nodes={"": 4}, gpus={"": {2: 1, 4: 2, 8: 1}}))
    assert why_queued(world.state, 1, world.trainer(1).spec, 0.0) == "all 1 places are taken (max_parallel)"


def test_one_that_waits_is_told_what_its_nodes_have_to_have() -> None:
    world = World(ALL)
    world.take(gpus(a=2, b=4, c=4))
    world.nodes(joined="ab")
    world.submit(1, n_min=2, workers=4)
    spec = world.trainer(1).spec
    assert why_queued(world.state, 1, spec, 0.0) == (
        "needs 2 nodes with 4 GPUs each, and only 1 of the machine's can be had now"
    )
    world.nodes(joined="c")
    assert world.held(1) == "bc"
