"""Whatever is lost on the way, all members of a trainer train together a while after the last fault."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.losing_world import NODES, LosingWorld


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32), faults=st.integers(1, 25))
def test_all_meet_after_the_last_fault(seed: int, faults: int) -> None:
    draw = random.Random(seed)
    world = LosingWorld(draw)
    for node in NODES:
        world.give(node)
    for _ in range(faults):
        for _ in range(draw.randint(0, 30)):
            world.go_on()
        if draw.random() < 0.5:
            world.pass_time(draw.uniform(0.1, 15.0))
        world.fault()
    world.calm()
    assert world.waiting() == []
    assert world.state.active
