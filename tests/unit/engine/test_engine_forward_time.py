"""T_fwd chosen from how long nodes have stayed."""

from __future__ import annotations

import random

import pytest

from bftrainer.engine.question import problem_of
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import (
    Cost,
    RescaleCosts,
)
from tests.support.engine_world import World


def test_without_a_given_time_decisions_look_as_far_as_nodes_have_stayed() -> None:
    """A long pause is worth it where nodes stay for hours, not where they are soon gone."""
    slow = RescaleCosts(up=Cost(stall_s=100.0))
    rng = random.Random("stays")
    for stay_s, worth in ((60.0, False), (20_000.0, True)):
        world = World(EngineSettings(t_fwd_s=None))
        for _ in range(500):
            world.nodes(joined="x")
            world.now += rng.expovariate(1.0 / stay_s) - 1.0
            world.nodes(left="x")
        world.running("a", costs=slow)
        assert (world.nodes(joined="b").actions != ()) is worth
        found = problem_of(world.state, (), world.now)[0].t_fwd_s
        assert found == pytest.approx(min(stay_s, 3600.0), rel=0.35)


def test_every_departure_is_observed_with_its_age() -> None:
    world = World()
    world.nodes(joined="ab")  # at 0
    world.now = 30.0
    world.nodes(joined="c")
    world.now = 50.0
    world.nodes(left="bc", joined="c")  # after 50 s and 20 s; c is there anew
    world.now = 65.0
    world.nodes(left="cx")  # after 15 s
    known = world.state.survival
    assert sum(known.left) == pytest.approx(3.0, rel=1e-2)
    assert sum(known.seen_s) == pytest.approx(50.0 + 20.0 + 15.0, rel=1e-2)
    assert world.state.since == {"a": 0.0}
