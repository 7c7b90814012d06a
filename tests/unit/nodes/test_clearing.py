"""How long nodes take to be cleared after our pilots, as learnt from polls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bftrainer.model.machine import Claim, Node, NodeState, Pilot, Snapshot
from bftrainer.nodes.clearing import CLEARING, JUDGED_BY, LONG_S, MOST_S, REMEMBERED, Clearing
from bftrainer.nodes.release import LEAD_S
from tests.support.nodes_world import World, run


def poll(time: float, *pilots: str, **why: str) -> Snapshot:
    nodes = tuple(
        Node(name=name, state=NodeState.BUSY if said else NodeState.IDLE, why=said)
        for name, said in why.items()
    )
    return Snapshot(time=time, nodes=nodes, pilots=tuple(Pilot(tag="t", node=name) for name in pilots))


def cleared(took_s: float, clearing: Clearing, node: str = "n1", user: str = "") -> None:
    clearing.begins([Pilot(tag="t", node=node, user=user)], 0.0)
    clearing.observe(poll(took_s, **{node: ""}))


def test_a_node_is_clear_when_neither_pilot_nor_epilog_are_there() -> None:
    clearing = Clearing()
    clearing.begins([Pilot(tag="t", node=node) for node in ("n1", "n2")], 100.0)
    clearing.observe(poll(100.2, "n1", n1="", n2="completing"))  # its pilot is listed still
    clearing.observe(poll(101.0, n1="completing", n2="allocated"))
    assert clearing.lead_s == 1.0
    clearing.observe(poll(110.0, n1="", n2="allocated"))
    assert clearing.lead_s == 10.0


def test_one_node_that_hangs_counts_little() -> None:
    clearing = Clearing()
    for _ in range(REMEMBERED - 1):
        cleared(1.0, clearing)
    cleared(100.0, clearing)
    assert clearing.lead_s == 1.0
    clearing.begins([Pilot(tag="t", node="n1")], 0.0)
    clearing.observe(poll(MOST_S + 1, n1="completing"))
    assert not clearing._ended, "it is waited for no longer"
    clearing.observe(poll(MOST_S + 2, n1=""))
    assert clearing.lead_s == 1.0, "it was not cleared but mended"


def test_a_user_whose_node_is_cleared_much_later_than_others_keeps_it() -> None:
    clearing = Clearing()

    def kept(user: str, *took_s: float) -> list[tuple[str, float]]:
        clearing.begins([Pilot(tag="t", node="n1", user=user)], 0.0)
        polls = [clearing.observe(poll(took, n1="completing")) for took in took_s]
        clearing.observe(poll(took_s[-1] + 0.1, n1=""))
        return [(found.user, found.since_s) for polled in polls for found in polled]

    assert kept("eve", 4.0, 9.0) == [], "perhaps an epilog takes so long"
    for _ in range(JUDGED_BY):
        cleared(2.0, clearing, user="ann")
    assert kept("ann", 4.0, 9.0) == [], "others have hardly been seen"
    for _ in range(JUDGED_BY):
        cleared(2.0, clearing, user="bob")
    assert kept("eve", 1.0, 3.9) == []
    usual = clearing.lead_s
    assert kept("eve", 3.9, 4.1, 5.0, 30.0) == [("eve", 4.1)], "once"
    assert kept("eve", 30.0) == [("eve", 30.0)]
    assert clearing.lead_s == usual, "others' nodes do not go earlier for that"
    assert kept("", 30.0) == [], "the daemon's own"


def test_what_was_long_ago_counts_no_more() -> None:
    clearing = Clearing()
    for took_s in (10.0, 1.0):
        for _ in range(REMEMBERED):
            cleared(took_s, clearing)
        assert clearing.lead_s == took_s


def test_a_long_time_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clearing = Clearing()
    for _ in range(9):
        cleared(1.0, clearing)
    assert not caplog.messages
    for _ in range(9):
        cleared(10.0, clearing)
    assert [message.split(",")[0] for message in caplog.messages] == [
        "nodes are seen to be free only 10 s after a pilot ends"
    ]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., World]:
    return lambda nodes=3, **given: World(tmp_path, nodes, **given)


def test_nodes_go_so_much_earlier_where_their_end_is_known(make: Callable[..., World]) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        await world.turn()
        cleared(10.0, world.nodes.state.clearing)
        world.machine.until = dict.fromkeys(("n0",), world.time + 50)
        await world.turn()
        assert world.nodes.state.hole_s("n0") == 50 - 1 - 10
        await world.turn(50 - LEAD_S - 10 - 2)
        assert "n0" in world.pool
        await world.turn(2)
        assert "n0" not in world.pool

    run(scenario)


def test_what_a_node_took_after_a_claim_is_learnt(make: Callable[..., World]) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        await world.turn()
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n0"}), count=1),)
        await world.turn()
        world.machine.take("n0")
        await world.turn(4)
        assert world.nodes.state.clearing.lead_s == 4.0

    run(scenario)


def test_a_user_that_keeps_a_node_gets_no_pilots_for_a_while(make: Callable[..., World]) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit(user="eve")
        await world.turn()
        for _ in range(JUDGED_BY):
            cleared(1.0, world.nodes.state.clearing, "elsewhere", user="ann")
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n0"}), count=1),)
        await world.turn()
        world.machine.why["n0"] = CLEARING
        await world.turn(LONG_S)
        assert "eve" not in world.pilots.conduct.barred()
        await world.turn()
        assert "n0 was not free 4 s after its pilot was ended" in world.pilots.conduct.barred()["eve"]

    run(scenario)
