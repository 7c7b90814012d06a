"""How long nodes take to be cleared after our pilots, as learnt from polls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.model.machine import Claim, Node, NodeState, Pilot, Snapshot
from bftrainer.nodes import lifecycle
from bftrainer.nodes.clearing import JUDGED_BY, LONG_S, REMEMBERED, ClearingTimes, KeptNode
from bftrainer.nodes.lifecycle import NodeCleared, NodePhase, Records
from bftrainer.nodes.pool import BEING_CLEARED, MOST_CLEARING_S, reconciled
from bftrainer.nodes.release import LEAD_S
from tests.support.nodes_world import World, run


def poll(time: float, *pilots: str, **why: str) -> Snapshot:
    nodes = tuple(
        Node(name=name, state=NodeState.BUSY if said else NodeState.IDLE, why=said)
        for name, said in why.items()
    )
    return Snapshot(time=time, nodes=nodes, pilots=tuple(Pilot(tag="t", node=name) for name in pilots))


class Clears:
    """Records of nodes whose pilots end, and what is learnt of that."""

    def __init__(self) -> None:
        self.records, self.times = Records(), ClearingTimes()

    def ends(self, *nodes: str, at: float = 0.0, user: str = "", by_us: bool = True) -> None:
        """The pilots of these nodes end now."""
        for node in nodes:
            self.records = lifecycle.adopted(self.records, Pilot(tag="t", node=node, user=user), at)
        self.records, _ = lifecycle.ended(self.records, nodes, at, by_us=by_us)

    def observe(self, snapshot: Snapshot) -> list[KeptNode]:
        """A poll."""
        self.records, effects = reconciled(self.records, snapshot)
        return self.times.observe(self.records, effects, snapshot.time)

    def cleared(self, took_s: float, user: str = "") -> None:
        """A node was cleared within this time."""
        self.ends("n1", user=user)
        self.observe(poll(took_s, n1=""))


def cleared(took_s: float, times: ClearingTimes, node: str = "n1", user: str = "") -> None:
    times.observe(Records(), [NodeCleared(Pilot(tag="t", node=node, user=user), took_s)], 0.0)


def test_a_node_is_clear_when_neither_pilot_nor_epilog_are_there() -> None:
    clears = Clears()
    clears.ends("n1", "n2", at=100.0)
    clears.observe(poll(100.2, "n1", n1="", n2="completing"))  # its pilot is listed still
    clears.observe(poll(101.0, n1="completing", n2="allocated"))
    assert clears.times.lead_s == 1.0
    assert clears.records.clearing.keys() == {"n1"}
    clears.observe(poll(110.0, n1="", n2="allocated"))
    assert clears.times.lead_s == 10.0


def test_a_node_is_being_released_for_as_long_as_its_pilot_is_listed() -> None:
    clears = Clears()
    clears.ends("n1", at=100.0)
    clears.observe(poll(100.2, "n1", n1=""))
    assert clears.records.releasing == {"n1"}, "the scheduler may still count it as ours"
    clears.observe(poll(101.0, n1="completing"))
    assert not clears.records.releasing and clears.records.clearing.keys() == {"n1"}


@pytest.mark.parametrize("others", [False, True], ids=["its pilot", "another user's job"])
def test_nobody_is_blamed_for_what_another_users_job_leaves_behind(others: bool) -> None:
    """A user could have others barred by a job on their node that ends slowly."""
    clears = Clears()
    for _ in range(JUDGED_BY):
        clears.cleared(1.0, user="ann")
    clears.ends("n1", user="bob")
    (end,) = clears.records.clearing.values()
    fake = replace(end.pilot, user="eve")
    kept = []
    for time in (1.0, 5.0, 30.0):
        shown = poll(time, n1="mixed+completing")
        kept += clears.observe(replace(shown, clearing=frozenset({fake if others else end.pilot})))
    assert [(one.user, one.since_s) for one in kept] == ([] if others else [("bob", 5.0)])
    assert clears.times.lead_s == 1.0


def test_a_pilot_that_the_scheduler_ended_tells_nothing_of_how_long_ours_take() -> None:
    clears = Clears()
    clears.ends("n1", by_us=False)
    assert clears.records.nodes["n1"].phase is NodePhase.CLEARING and not clears.records.clearing
    clears.observe(poll(10.0, n1=""))
    assert clears.times.lead_s == 0.0 and clears.records.nodes["n1"].phase is NodePhase.RESTING


def test_one_node_that_hangs_counts_little() -> None:
    clears = Clears()
    for _ in range(REMEMBERED - 1):
        clears.cleared(1.0)
    clears.cleared(100.0)
    assert clears.times.lead_s == 1.0
    clears.ends("n1")
    clears.observe(poll(MOST_CLEARING_S + 1, n1="completing"))
    assert not clears.records.clearing, "it is waited for no longer"
    clears.observe(poll(MOST_CLEARING_S + 2, n1=""))
    assert clears.times.lead_s == 1.0, "it was not cleared but mended"


def test_a_user_whose_node_is_cleared_much_later_than_others_keeps_it() -> None:
    clears = Clears()

    def kept(user: str, *took_s: float) -> list[tuple[str, float]]:
        clears.ends("n1", user=user)
        polls = [clears.observe(poll(took, n1="completing")) for took in took_s]
        polls.append(clears.observe(poll(took_s[-1] + 0.1, n1="")))
        return [(found.user, found.since_s) for polled in polls for found in polled]

    assert kept("eve", 4.0, 9.0) == [], "perhaps an epilog takes so long"
    for _ in range(JUDGED_BY):
        clears.cleared(2.0, user="ann")
    assert kept("ann", 4.0, 9.0) == [], "others have hardly been seen"
    for _ in range(JUDGED_BY):
        clears.cleared(2.0, user="bob")
    assert kept("eve", 1.0, 3.9) == []
    usual = clears.times.lead_s
    assert kept("eve", 3.9, 4.1, 5.0, 30.0) == [("eve", 4.1)], "once"
    assert kept("eve", 30.0) == [("eve", 30.0)]
    assert clears.times.lead_s == usual, "others' nodes do not go earlier for that"
    assert kept("", 30.0) == [], "the daemon's own"


def test_what_was_long_ago_counts_no_more() -> None:
    times = ClearingTimes()
    for took_s in (10.0, 1.0):
        for _ in range(REMEMBERED):
            cleared(took_s, times)
        assert times.lead_s == took_s


def test_a_long_time_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    times = ClearingTimes()
    for _ in range(9):
        cleared(1.0, times)
    assert not caplog.messages
    for _ in range(9):
        cleared(10.0, times)
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
        world.machine.why["n0"] = BEING_CLEARED
        await world.turn(LONG_S)
        assert "eve" not in world.pilots.quarantine.barred()
        await world.turn()
        assert "n0 was not free 4 s after its pilot was ended" in world.pilots.quarantine.barred()["eve"]

    run(scenario)
