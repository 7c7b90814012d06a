"""Trainers whose start takes longer than nodes are assumed to stay."""

from __future__ import annotations

import pytest

from bftrainer.engine.queueing.waiting import Shortage
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import Cost, RescaleCosts
from tests.support.engine_world import World, starts

SLOW = RescaleCosts(up=Cost(stall_s=1.0, init_s=43.0))
SHORT = EngineSettings(max_parallel=None, t_fwd_s=30.0)


@pytest.mark.parametrize("settings", [SHORT, EngineSettings(max_parallel=2, t_fwd_s=30.0)])
def test_a_slow_start_gets_the_nodes_that_nobody_wants(settings: EngineSettings) -> None:
    world = World(settings)
    world.submit(1, n_max=2, costs=SLOW)
    assert starts(world.nodes(joined="abc")) == [(1, "a"), (1, "b")]


def test_a_slow_start_takes_nothing_from_those_that_gain_by_it() -> None:
    world = World(SHORT).running("ab", n_max=3)
    world.submit(2, user="ann", costs=SLOW)
    assert not world.held(2)
    world.nodes(joined="cd")
    assert (world.held(1), world.held(2)) == ("abc", "d")


def test_why_it_waits_beside_free_nodes_is_told_with_what_to_do() -> None:
    world = World(SHORT)
    world.submit(1, costs=SLOW)
    world.expect({"a": 20.0}, joined="a")  # no start pays before that
    assert not world.held(1)
    shortage, trainer = Shortage.of(world.state), world.trainer(1)
    assert shortage.why(trainer) == (
        "needs 1 node, 1 free: the last plan gave it none, as a start takes 43 s, and nodes are assumed to "
        "stay 30 s (t_fwd_s), see bftrainer events"
    )
    assert shortage.remedy(trainer) == "an admin raises t_fwd_s above 43 s"
