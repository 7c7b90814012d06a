"""However nodes leave and workers end, a trainer ends when rank 0 has ended well, and never before.

It fails exactly if the script has failed after the loop that rank 0 has left last, on another node.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bftrainer.model.trainer import TrainerStatus
from tests.support.ending_world import EndingWorld
from tests.support.torchrun_ending_world import TorchrunEndingWorld

NODES = st.sampled_from("abcd")
BEFORE = st.tuples(st.sampled_from(["join", "vacate", "break", "leave noticed", "exit 0", "exit 1"]), NODES)
AFTER = st.tuples(
    st.sampled_from(
        ["join", "vacate", "leave noticed", "leave unnoticed", "exit 0", "exit 1", "exit -9", "wait"]
    ),
    NODES,
)
OPS = st.builds(
    lambda before, after, more: [*before, ("finish", ""), *after, *more],
    st.lists(BEFORE, max_size=4),
    st.lists(AFTER, max_size=5),
    st.lists(st.one_of(BEFORE, AFTER, st.just(("finish", ""))), max_size=10),
)


def do(world: EndingWorld, what: str, node: str) -> None:
    match what.split():
        case ["join"]:
            world.join(node)
        case ["vacate"]:
            world.vacate(node)
        case ["leave", how]:
            world.leave(node, noticed_first=how == "noticed")
        case ["break"]:
            world.break_off(node)
        case ["finish"]:
            world.finish()
        case ["exit", code]:
            world.exit(node, int(code))
        case ["wait"]:
            world.timers.advance(2.0)
            world.run()


def check(world: EndingWorld) -> None:
    """Engine and launcher agree on which workers there are, and all that can be started are."""
    if 1 in world.state.active and not world.launcher.known[1].finished:
        there = world.launcher.known[1].workers
        assert set(world.state.active[1].started) == set(there)
        assert all(view.sent for view in there.values())


@pytest.mark.parametrize("world_type", [EndingWorld, TorchrunEndingWorld])
@pytest.mark.parametrize("until_exit", [False, True])
@settings(max_examples=200, deadline=None)
@example(
    ops=[("break", "b"), ("exit 0", "b"), ("finish", ""), ("vacate", "a")], last="abcd", given_at_last=""
)
@example(
    ops=[("break", "b"), ("exit 0", "a"), ("finish", ""), ("exit 1", "b")], last="abcd", given_at_last=""
)
@given(ops=OPS, last=st.permutations("abcd"), given_at_last=st.sampled_from(["", "abcd"]))
def test_a_trainer_always_ends_and_never_before_rank_0_has_ended_well(
    world_type: type[EndingWorld],
    until_exit: bool,
    ops: list[tuple[str, str]],
    last: list[str],
    given_at_last: str,
) -> None:
    world = world_type(until_exit=until_exit)
    for node in "ab":
        world.join(node)
    for what, node in ops:
        if world.ended is None:
            do(world, what, node)
            check(world)
    for node in given_at_last or ("" if world.state.pool else "a"):
        world.join(node)
    for _ in range(10):  # from now on all is quiet
        if world.ended is None:
            world.finish()
            for node in last:
                if node in world.workers and world.workers[node].finished:
                    world.exit(node, 0)
            world.timers.advance(100.0)
            world.run()
    assert world.ended is not None, (world.workers, world.launcher.known[1], world.state.active)
    failed = world.ended_in in world.failures
    assert world.ended.status is (TrainerStatus.FAILED if failed else TrainerStatus.COMPLETED)
    assert world.ended_well or until_exit
