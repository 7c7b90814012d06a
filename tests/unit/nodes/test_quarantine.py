"""What one user's failing pilots cost that user, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from bftrainer.errors import UnsureError
from bftrainer.model.machine import Pilot
from bftrainer.nodes import lifecycle
from bftrainer.nodes.lifecycle import Records
from bftrainer.nodes.pilots import OF_ONE_USER, Pilots, submission_turns
from bftrainer.nodes.quarantine import BACKOFF_S, FORGIVEN_S, IN_A_ROW, OFTEN, RECENT_S, Quarantine
from bftrainer.testing.memory import Machine, MemoryScheduler
from tests.support.nodes_world import World as NodesWorld
from tests.support.nodes_world import run


class World:
    """Pilots of ann and eve over a machine in memory, with a clock that the test moves."""

    def __init__(self, per_minute: int = 100) -> None:
        self.time = 1000.0
        self.users = frozenset({"ann", "eve"})
        self.machine = Machine({f"n{i}" for i in range(12)})
        self.scheduler = MemoryScheduler(self.machine, self.now)
        self.hits: list[str] = []
        self.trouble = ""
        self.quarantine = Quarantine(self, lambda: self.users, lambda user, reason: self.hits.append(user))
        self.pilots = Pilots(
            *(self.scheduler, b"key", self, lambda node: False, self.tell, self.works),
            start_s=60.0,
            spare_s=10.0,
            per_minute=per_minute,
            quarantine=self.quarantine,
            records=lifecycle.begun(Records(), self.machine.idle, self.time),
        )

    def now(self) -> float:
        return self.time

    def tell(self, event: str, pilots: Iterable[Pilot], reason: str) -> None:
        """Not of interest here."""

    def works(self, reason: str) -> None:
        self.trouble = reason

    def could(self, user: str, *nodes: str) -> list[str]:
        """The nodes of these for which a user's pilots would be submitted."""
        return [pilot.node for pilot in self.pilots.to_submit(dict.fromkeys(nodes, user))]


def test_a_users_failures_on_a_node_count_for_that_user_alone() -> None:
    world = World()
    for fails in (world.quarantine.fails, lambda *told: world.quarantine.ends_soon(*told[:2])):
        for _ in range(2):
            fails("n1", "eve", "its agent did not report")
        assert world.quarantine.nodes() == {}
        assert world.could("eve", "n1", "n2") == ["n2"] and world.could("ann", "n1") == ["n1"]
        world.time += FORGIVEN_S


def test_a_node_on_which_some_users_fail_is_left_alone_by_these_only() -> None:
    """They may be some whom the site lets submit nothing."""
    world = World()
    world.users |= {"bob"}
    world.quarantine.fails("n1", "eve", "its agent did not report")
    world.quarantine.fails("n1", "ann", "its agent did not report")
    assert world.quarantine.nodes() == {} and world.could("bob", "n1") == ["n1"]
    assert world.could("eve", "n1") == world.could("ann", "n1") == []
    world.quarantine.node_fails("n2", "no such node")
    assert world.could("bob", "n2") == []


def test_a_node_on_which_all_users_there_are_fail_is_left_alone() -> None:
    world = World()
    world.users = frozenset({"eve"})
    world.quarantine.fails("n1", "eve", "its agent did not report")
    assert world.quarantine.nodes().keys() == {"n1"}
    world.users |= {"ann"}
    assert world.quarantine.nodes() == {}


def test_until_when_a_node_is_left_alone_is_known() -> None:
    world = World()
    world.quarantine.fails("n1", "eve", "its agent did not report")
    world.time += 1.0
    world.quarantine.fails("n1", "ann", "its agent did not report")
    world.quarantine.ends_soon("n2", "eve")
    world.quarantine.node_fails("n3", "no such node")
    begun = world.time
    assert world.quarantine.retried() == {"n1": begun - 1.0 + BACKOFF_S, "n3": begun + BACKOFF_S}
    world.time = begun - 1.0 + BACKOFF_S
    assert world.quarantine.nodes().keys() == {"n3"}, "eve is tried again on n1"
    assert world.quarantine.retried() == {"n1": begun + BACKOFF_S, "n3": begun + BACKOFF_S}


def test_a_user_whose_pilots_fail_often_gets_none_for_longer_and_longer() -> None:
    world, waits = World(), []
    for _ in range(4):
        for i in range(OFTEN):
            assert world.quarantine.barred() == {}
            world.quarantine.fails(f"n{i}", "eve", "killed")
        assert "killed" in world.quarantine.barred()["eve"]
        assert world.could("eve", "n9") == [] and world.could("ann", "n0", "n9") == ["n0", "n9"]
        began = world.time
        while world.quarantine.barred():
            world.time += 1.0
        waits.append(world.time - began)
    assert waits == [BACKOFF_S, 2 * BACKOFF_S, 4 * BACKOFF_S, 8 * BACKOFF_S]
    assert world.hits == ["eve"] * 4


def test_failures_that_are_far_apart_bar_nobody() -> None:
    world = World()
    for i in range(3 * OFTEN):
        world.quarantine.fails(f"n{i}", "eve", "killed")
        world.time += RECENT_S / (OFTEN - 1)
    assert world.quarantine.barred() == {}


def test_what_is_long_over_is_forgotten() -> None:
    world = World()
    for i in range(OFTEN):
        world.quarantine.fails(f"n{i}", "eve", "killed")
    world.time += 10 * FORGIVEN_S
    world.quarantine.nodes()
    kept = (world.quarantine._met, world.quarantine._users, world.quarantine._recent)
    assert not any(kept)


def test_a_submission_without_an_answer_holds_up_its_user_alone() -> None:
    async def stopped(pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
        raise UnsureError("sudo took more than 20 s")

    world = World()
    world.scheduler.submit = stopped  # type: ignore[method-assign]
    asyncio.run(world.pilots.order(world.pilots.to_submit({"n0": "eve"}), lambda node: None))
    assert world.could("ann", "n1") == ["n1"] and world.could("eve", "n1") == []
    world.time += BACKOFF_S
    assert world.could("eve", "n1") == ["n1"]


def test_submissions_of_one_user_that_are_refused_hold_up_that_user_alone() -> None:
    world = World()
    world.scheduler.refuses = lambda pilot: "sbatch was killed" if pilot.user == "eve" else ""
    wanted = {f"n{i}": "eve" for i in range(IN_A_ROW)}
    asyncio.run(world.pilots.order(world.pilots.to_submit(wanted), lambda node: None))
    assert world.trouble == "" and world.quarantine.nodes() == {}
    assert world.could("ann", *wanted) == sorted(wanted) and world.could("eve", "n9") == []


@pytest.mark.parametrize("others", [False, True])
def test_submissions_of_several_users_that_are_refused_hold_up_these_alone(others: bool) -> None:
    world = World()
    world.users |= {"bob"} if others else frozenset()
    world.scheduler.refuses = lambda pilot: "a password is required"
    wanted = {f"n{i}": "eve" if i % 2 else "ann" for i in range(2 * IN_A_ROW)}
    asyncio.run(world.pilots.order(world.pilots.to_submit(wanted), lambda node: None))
    assert bool(world.trouble) is not others, "else there is nobody whose pilots can be had"
    assert world.could("ann", "n9") == world.could("eve", "n9") == []
    assert world.could("bob", "n1", "n9") == ["n1", "n9"]


def test_commands_of_one_user_that_never_end_leave_room_for_others() -> None:
    async def scenario() -> None:
        world, stuck = World(), list[Pilot]()
        submit = world.scheduler.submit

        async def stopped(pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
            if pilot.user == "eve":
                stuck.append(pilot)
                await asyncio.Event().wait()
            await submit(pilot, secret, limit_s)

        world.scheduler.submit = stopped  # type: ignore[method-assign]
        eves = world.pilots.to_submit({f"n{i}": "eve" for i in range(9)})
        stands = [asyncio.create_task(world.pilots.order([pilot], lambda node: None)) for pilot in eves]
        await asyncio.sleep(0)
        await world.pilots.order(world.pilots.to_submit({"n9": "ann"}), lambda node: None)
        assert {pilot.node for pilot in world.machine.pilots} == {"n9"}
        assert len(stuck) == OF_ONE_USER
        for stand in stands:
            stand.cancel()

    run(scenario)


def test_submissions_are_shared_out_between_users() -> None:
    missing = {f"n{i}": "eve" if i < 6 else "ann" for i in range(8)}
    assert submission_turns(missing, {}, 100, {"ann", "eve"})[:4] == ["n0", "n6", "n1", "n7"]
    assert submission_turns(missing, {"eve": 2}, 8, {"ann", "eve"}) == ["n0", "n6", "n1", "n7"]
    assert submission_turns(missing, {"eve": 4}, 8, {"ann", "eve"}) == ["n6", "n7"]
    assert submission_turns(missing, {"eve": 4, "ann": 4}, 8, {"ann", "eve"}) == []
    assert submission_turns(dict.fromkeys(("n0", "n1"), "eve"), {}, 2, {"eve"}) == ["n0", "n1"]
    assert submission_turns({"n0": "eve"}, {}, 1, {"ann", "eve"}) == ["n0"]


def test_nodes_go_to_others_while_a_user_is_barred(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = NodesWorld(tmp_path, nodes=4, spare_s=0)
        world.users = frozenset({"ann", "eve"})
        await world.submit(name="e", n_max=4, user="eve")
        await world.submit(name="a", n_max=2, user="ann")
        await world.turn()
        mine = world.state.active[1].nodes
        assert mine
        for i in range(OFTEN):
            world.pilots.quarantine.fails(f"m{i}", "eve", "killed")
        await world.turn()
        assert not world.state.active[1].nodes and world.state.barred.keys() == {"eve"}
        assert len(world.state.active[2].nodes) == 2
        await world.turn(BACKOFF_S)
        assert world.state.active[1].nodes and not world.state.barred

    run(scenario)


def test_pilots_that_end_soon_on_idle_nodes_count_against_their_user(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = NodesWorld(tmp_path, nodes=4)
        world.users = frozenset({"ann", "eve"})
        await world.submit(name="e", n_max=4, user="eve")
        for _ in range(20):
            await world.turn()
            for node in tuple(world.pilots.held):
                world.pilots.reports(node)
            world.machine.pilots.clear()  # its agents kill themselves
        assert world.workers.blamed, "a worker may have killed them"
        assert "eve" in world.state.barred and not world.pilots.quarantine.nodes()

    run(scenario)


def test_a_node_where_a_users_pilots_fail_goes_to_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = NodesWorld(tmp_path, nodes=2)
        world.users = frozenset({"ann", "eve"})
        await world.submit(name="e", n_max=1, user="eve")
        await world.turn()
        (node,) = world.state.active[1].nodes
        await world.submit(name="a", n_max=1, user="ann")
        other = {"n0", "n1"} - {node}
        assert world.state.active[2].nodes == other
        world.nodes.losses.misbehaves(node, "its agent sends too much")
        await world.turn()
        await world.turn()
        assert not world.state.active[1].nodes, "eve's trainer waits for a node where it gets a pilot"
        world.cancel(2)
        await world.settle()
        assert world.state.active[1].nodes == other
        await world.submit(name="b", n_max=1, user="ann")
        assert world.state.active[3].nodes == {node} and world.held() == "n0 n1"
        world.cancel(3)
        await world.turn(BACKOFF_S)
        assert not world.state.kept_off

    run(scenario)
