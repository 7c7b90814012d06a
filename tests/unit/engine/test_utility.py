"""Trainers have as many nodes as they make enough use of. Other trainers, or the host, have the rest."""

from __future__ import annotations

from bftrainer.model.policy import EngineSettings
from bftrainer.model.sizes import AllowedSizes
from tests.support.engine_world import World

BOUNDS = EngineSettings(objective="efficiency", low_utility=0.4, high_utility=0.6, max_parallel=None)
FLAT = ((1, 1.0), (2, 1.8), (4, 2.4), (8, 2.8))
"""Utilities of 1, 0.9, 0.7, 0.6, 0.5, 0.43, 0.39 and 0.35 on 1 to 8 nodes."""


def test_nodes_that_help_little_stay_with_the_host() -> None:
    world = World(BOUNDS)
    world.submit(1, curve=FLAT)
    world.nodes(joined="abcdefgh")
    assert len(world.held(1)) == 5, "closest to the middle"
    free = World(EngineSettings(objective="efficiency"))
    free.submit(1, curve=FLAT)
    free.nodes(joined="abcdefgh")
    assert len(free.held(1)) == 8


def test_others_have_what_one_makes_no_use_of() -> None:
    world = World(BOUNDS)
    world.submit(1, curve=FLAT)
    world.submit(2, curve=((8, 8.0),), weight=0.01)
    world.nodes(joined="abcdefgh")
    assert (len(world.held(1)), len(world.held(2))) == (5, 3)


def test_what_is_held_stays_within_the_bounds_and_is_changed_beyond_them() -> None:
    world = World(BOUNDS)
    world.submit(1, curve=FLAT)
    world.nodes(joined="abcd")
    assert len(world.held(1)) == 4
    world.nodes(joined="efgh")
    assert len(world.held(1)) == 4, "0.6 is within the bounds"
    lost = world.held(1)[:2]
    world.nodes(left=lost)
    assert len(world.held(1)) == 5, "0.9 is above them, and three more nodes are idle"


def test_a_trainer_has_what_it_needs_at_least_and_sizes_that_it_allows() -> None:
    world = World(BOUNDS)
    world.submit(1, curve=FLAT, n_min=8)
    world.nodes(joined="abcdefgh")
    assert len(world.held(1)) == 8
    sized = World(BOUNDS)
    sized.submit(1, curve=FLAT, sizes=AllowedSizes(listed=(1, 2, 8)))
    sized.nodes(joined="abcdefgh")
    assert len(sized.held(1)) == 8, "0.35 is closer to 0.5 than 0.9"
    small = World(BOUNDS)
    small.submit(1, curve=FLAT, n_min=2)
    small.nodes(joined="a")
    assert small.held(1) == ""
