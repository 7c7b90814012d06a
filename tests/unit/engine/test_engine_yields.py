"""Trainers that kept nodes without ever running let others go first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import TrainerStatus
from tests.support.engine_world import World, starts

LATE = {"blame": True, "late": True, "reason": "did not reach elastic.Run within 1800 s"}


@pytest.mark.parametrize("limit", [None, 2, 10])
def test_a_trainer_that_never_became_ready_yields_its_nodes_to_others(limit: int | None) -> None:
    world = World(EngineSettings(max_parallel=limit, t_fwd_s=120.0))
    world.submit(1, user="eve", n_max=1, weight=9.0)
    world.submit(2, user="bob", n_max=1, weight=9.0)
    world.nodes(joined="ab")
    world.submit(3, user="ann", n_max=1)
    assert world.held(1) and world.held(2) and not world.held(3)
    node = world.held(1)
    step = world.lost(1, node, **LATE)
    assert not world.held(1) and world.held(3) == node and starts(step) == [(3, node)]
    assert world.held(2), "one that is slow to start keeps its node"
    world.end(3)
    assert world.held(1) == node, "it gets what nobody else wants"


def test_it_tries_again_where_nobody_else_waits_and_fails_in_the_end() -> None:
    world = World(EngineSettings(max_parallel=None, max_failures=1))
    world.submit(1, n_max=1)
    world.nodes(joined="a")
    assert starts(world.lost(1, "a", **LATE)) == [(1, "a")]
    step = world.lost(1, "a", **LATE)
    assert step.ended is not None and step.ended.status is TrainerStatus.FAILED


def test_once_it_runs_it_counts_as_before() -> None:
    world = World(EngineSettings(max_parallel=None))
    world.submit(1, n_max=2, weight=9.0)
    world.nodes(joined="a")
    world.lost(1, "a", **LATE)
    assert world.trainer(1).yields
    world.ready(1, "a")
    assert not world.trainer(1).yields and not world.trainer(1).late
    world.submit(2, user="ann", n_max=2)
    world.nodes(joined="b")
    assert len(world.held(1)) == 2


def test_a_worker_that_is_late_where_others_train_costs_its_trainer_nothing() -> None:
    world = World(EngineSettings(max_parallel=None)).running("a", n_max=2, weight=9.0)
    world.nodes(joined="b")
    world.submit(2, user="ann", n_max=2)
    world.lost(1, "b", **LATE)
    assert world.held(1) == "ab" and not world.held(2)
    world.state = replace(world.state, settings=EngineSettings(max_parallel=1))
    assert not world.trainer(1).yields
