"""A worker that gets ready at the very moment when its trainer ends does not stay."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.slow_ending_world import MANY, SlowEndingWorld


def end_while_one_starts_again(world: SlowEndingWorld, draw: random.Random, killed: str) -> None:
    """A member is killed, and starts anew while the other does what is left of the work, and ends."""
    world._exited(killed, world.workers[killed], -9, "")
    is_done = False
    for _ in range(MANY):
        if not is_done and (members := world.group()) and draw.random() < 0.3:
            is_done = True
            for rank, node in enumerate(members):
                world._leave_loop(node, rank)
        elif is_done and draw.random() < 0.3:
            for node, worker in list(world.workers.items()):
                if worker.finished:
                    world._exited(node, worker, 0, "")
        elif not world.go_on() and is_done and not any(w.finished for w in world.workers.values()):
            return
    raise AssertionError("it never comes to rest")


@settings(max_examples=300, deadline=None)
@given(draw=st.randoms(use_true_random=True), killed=st.sampled_from("ab"))
def test_whatever_comes_first_no_worker_stays_when_its_trainer_has_ended(
    draw: random.Random, killed: str
) -> None:
    world = SlowEndingWorld(draw)
    assert len(world.group()) == 2
    end_while_one_starts_again(world, draw, killed)
    world.timers.advance(10.0)
    world.settle()
    assert world.ended is not None
    assert world.workers == {}
    assert 1 not in world.launcher.known, "its last worker is known to have gone"
