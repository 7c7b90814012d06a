"""Which pilots are ordered, and what becomes of them when orders and answers get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from bftrainer.model.machine import Node, NodeState, Pilot, Snapshot
from bftrainer.nodes import lifecycle
from bftrainer.nodes.lifecycle import CancelPilots, Records
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.pool import LISTED_S, landed, lost, reconciled
from bftrainer.nodes.quarantine import BACKOFF_S, IN_A_ROW, Quarantine
from bftrainer.testing.memory import Machine, MemoryScheduler


class World:
    """Pilots over a machine in memory, with a clock that the test moves."""

    def __init__(self, nodes: int = 4, per_minute: int = 100) -> None:
        self.time = 1000.0
        self.machine = Machine({f"n{i}" for i in range(nodes)})
        self.scheduler = MemoryScheduler(self.machine, self.now)
        self.agents: set[str] = set()
        self.said: list[tuple[str, tuple[str, ...], str]] = []
        self.trouble = ""
        self.hits: list[str] = []
        self.users = frozenset[str]()
        self.pilots = Pilots(
            self.scheduler,
            b"key",
            self,
            lambda node: node in self.agents,
            self.tell,
            self.works,
            start_s=60.0,
            spare_s=10.0,
            per_minute=per_minute,
            quarantine=Quarantine(self, lambda: self.users, lambda user, _: self.hits.append(user)),
            records=lifecycle.begun(Records(), self.machine.idle, self.time),
        )

    def now(self) -> float:
        return self.time

    def tell(self, event: str, pilots: Iterable[Pilot], reason: str) -> None:
        self.said.append((event, tuple(p.node for p in pilots), reason))

    def works(self, reason: str) -> None:
        self.trouble = reason

    def hold(self, wanted: Mapping[str, str]) -> list[str]:
        """Order what is missing; the nodes that get none."""
        return asyncio.run(self.pilots.order(self.pilots.to_submit(wanted), lambda node: None))

    def look(self) -> None:
        """One poll's reconciliation."""
        asyncio.run(self.pilots.cancel(self.strays(self.machine.pilots)))

    def strays(self, listed: Iterable[Pilot], later_s: float = 0.0) -> list[Pilot]:
        """Those that a poll lists, so much later, and that should not exist."""
        snapshot = self.poll(listed, later_s)
        records, effects = reconciled(landed(self.pilots.records, snapshot), snapshot)
        self.pilots.records = records
        return [pilot for effect in effects if isinstance(effect, CancelPilots) for pilot in effect.pilots]

    def lost(self, listed: Iterable[Pilot] = (), later_s: float = 0.0) -> dict[str, str]:
        """The nodes whose pilots are gone or never began, as of a poll so much later."""
        return lost(self.pilots.records, self.poll(listed, later_s), self.pilots.connected, 60.0)

    def poll(self, listed: Iterable[Pilot], later_s: float = 0.0) -> Snapshot:
        nodes = tuple(Node(name=name, state=NodeState.IDLE) for name in sorted(self.machine.idle))
        return Snapshot(time=self.time + later_s, nodes=nodes, pilots=tuple(listed))

    def land(self, *listed: Pilot) -> list[str]:
        """The nodes that are held after a poll that lists these."""
        self.pilots.records = landed(self.pilots.records, self.poll(listed))
        return sorted(self.pilots.held)

    def lets_go(self, node: str) -> Pilot:
        """Its pilot is to end: if a later poll lists it, it is cancelled."""
        self.pilots.records, cancel = lifecycle.ended(self.pilots.records, [node], self.time)
        return cancel.pilots[0]

    def on(self) -> dict[str, str]:
        """Node -> user of the pilots that the machine runs."""
        return {p.node: p.user for p in self.machine.pilots}


@pytest.fixture
def world() -> World:
    return World()


def test_a_wanted_node_gets_one_pilot_of_its_user_and_no_second(world: World) -> None:
    wanted = {"n0": "", "n2": "bob"}
    assert world.hold(wanted) == []
    assert world.on() == wanted
    assert world.pilots.to_submit(wanted) == []
    assert world.pilots.runs_as("n2", "bob") and not world.pilots.runs_as("n2", "")


def test_a_node_that_is_being_given_up_gets_no_new_pilot(world: World) -> None:
    world.hold({"n0": ""})
    before = world.pilots.records
    world.pilots.records = lifecycle.released(before, ["n0"], world.time, claimed=False)
    assert [pilot.node for pilot in world.pilots.to_submit({"n0": "", "n1": ""})] == ["n1"]
    world.pilots.records = lifecycle.refused(before, before.pilots["n0"], world.time)
    assert [pilot.node for pilot in world.pilots.to_submit({"n0": ""})] == ["n0"]


def test_secrets_differ_by_pilot_and_follow_from_the_key(world: World) -> None:
    one, two = world.pilots.secret_of("a"), world.pilots.secret_of("b")
    assert one != two and one == World().pilots.secret_of("a") and "key" not in one


def test_no_more_are_submitted_than_may_be_in_a_minute() -> None:
    world = World(nodes=8, per_minute=3)
    wanted = dict.fromkeys(sorted(world.machine.idle), "")
    world.hold(wanted)
    assert len(world.on()) == 3
    world.time += 30
    assert world.hold(wanted) == [] and len(world.on()) == 3
    world.time += 31
    world.hold(wanted)
    assert len(world.on()) == 6


def test_a_submission_whose_answer_was_lost_is_found_and_not_repeated(world: World) -> None:
    world.scheduler.loses = lambda pilot: True
    assert world.hold({"n0": ""}) == []
    assert world.pilots.to_submit({"n0": ""}) == []
    world.look()
    assert world.on() == {"n0": ""}


def test_a_submission_that_was_lost_altogether_is_given_up_after_a_while(world: World) -> None:
    world.scheduler.loses = lambda pilot: True
    world.hold({"n0": ""})
    world.machine.pilots.clear()
    assert world.lost(()) == {}
    world.time += LISTED_S + 1
    assert list(world.lost(())) == ["n0"]


def test_a_pilot_that_nobody_knows_is_cancelled_once_and_again_if_it_stays(world: World) -> None:
    stray = Pilot(tag="feed", node="n3")
    world.machine.pilots.append(stray)
    assert world.strays([stray]) == [stray]
    asyncio.run(world.pilots.cancel([stray]))
    assert world.strays([stray], 1) == []
    assert world.strays([stray], BACKOFF_S + 1) == [stray]


def test_a_job_that_carries_anothers_tag_is_not_taken_for_its_pilot(world: World) -> None:
    world.hold({"n0": "alice"})
    tag = world.pilots.held["n0"].pilot.tag
    fake = Pilot(tag=tag, node="n0", user="bob", job="77")
    world.machine.pilots.append(fake)
    assert world.strays(world.machine.pilots) == [fake]
    assert world.pilots.runs_as("n0", "alice")
    world.look()
    assert world.on() == {"n0": "alice"}
    assert world.strays([fake], BACKOFF_S + 1) == [fake]
    assert world.lost([fake], LISTED_S + 1) == {"n0": "its pilot is gone"}


def test_a_pilot_that_landed_on_another_node_is_used_there(world: World) -> None:
    """Some schedulers choose the node themselves."""
    world.hold({"n0": "", "n1": ""})
    first, second = sorted(world.machine.pilots, key=lambda pilot: pilot.node)
    world.machine.pilots = [replace(first, node="n1"), replace(second, pending="waits")]
    assert world.pilots.records.awaits(first.tag), "its agent is to connect again, not to end"
    world.look()
    assert world.pilots.known("n1", first.tag) is not None
    assert world.pilots.known("n0", first.tag) is None
    assert world.on() == {"n1": ""}, "what was to run there is cancelled"
    assert [pilot.node for pilot in world.pilots.to_submit({"n0": "", "n1": ""})] == ["n0"]


def test_pilots_that_landed_on_each_others_nodes_are_used_there(world: World) -> None:
    world.hold({"n0": "", "n1": ""})
    first, second = sorted(world.machine.pilots, key=lambda pilot: pilot.node)
    world.machine.pilots = [replace(first, node="n1"), replace(second, node="n0")]
    world.look()
    assert {node: held.pilot.tag for node, held in world.pilots.held.items()} == {
        "n1": first.tag,
        "n0": second.tag,
    }
    assert world.machine.cancelled == []


def test_another_users_job_with_the_tag_is_no_pilot_that_landed(world: World) -> None:
    world.hold({"n0": "ann"})
    (pilot,) = world.machine.pilots
    assert world.land(replace(pilot, node="n1", user="eve")) == ["n0"]
    world.hold({"n1": "ann"})
    world.pilots.records = lifecycle.released(world.pilots.records, ["n1"], world.time, claimed=False)
    world.lets_go("n1")
    assert world.land(replace(pilot, node="n1")) == ["n0"], "that node is being given back"


def test_a_pilot_whose_agent_has_come_stays_where_it_is(world: World) -> None:
    world.hold({"n0": "", "n1": ""})
    first, second = sorted(world.machine.pilots, key=lambda pilot: pilot.node)
    world.pilots.reports("n0")
    assert not world.pilots.records.awaits(first.tag)
    others = replace(first, node="n2"), replace(second, node="n0"), replace(second, user="eve")
    assert world.land(*others) == ["n0", "n1"]
    assert world.land(first, replace(first, node="n2")) == ["n0", "n1"]


def test_a_second_pilot_on_a_node_goes_and_the_known_one_stays(world: World) -> None:
    world.hold({"n0": ""})
    twin = Pilot(tag="twin", node="n0")
    world.machine.pilots.append(twin)
    world.look()
    assert world.machine.cancelled == ["twin"] and world.on() == {"n0": ""}


def test_what_cannot_be_cancelled_is_cancelled_a_little_later(world: World) -> None:
    world.hold({"n0": ""})
    pilot = world.lets_go("n0")
    world.scheduler.down = "no contact"
    asyncio.run(world.pilots.cancel([pilot]))
    assert world.said[-1] == ("cancel_failed", ("n0",), "no contact")
    world.scheduler.down = ""
    world.look()
    assert world.on() == {"n0": ""}, "not at every look"
    world.time += BACKOFF_S + 1
    world.look()
    assert world.on() == {}


def test_what_can_never_be_cancelled_is_tried_less_and_less_often(world: World) -> None:
    """A job of somebody who is no user of ours carries a pilot's name: to end it is not ours to do."""
    alien = Pilot(tag="feed", node="n3", user="eve")
    world.machine.pilots.append(alien)
    world.scheduler.keeps = lambda pilot: "sudo: a password is required" if pilot.user == "eve" else ""
    world.machine.pilots.append(Pilot(tag="stray", node="n2", user="ann"))
    hour = 3600
    for _ in range(hour):
        world.look()
        world.time += 1.0
    tries = [nodes for event, nodes, _ in world.said if event == "cancel_failed"]
    assert tries[0] == ("n3", "n2") and world.on() == {"n3": "eve"}, "the other one's went nonetheless"
    assert 10 < len(tries) < 20


def test_a_refused_node_is_left_alone_for_longer_and_longer(world: World) -> None:
    world.scheduler.refuses = lambda pilot: "no such node" if pilot.node == "n0" else ""
    assert world.hold({"n0": "", "n1": ""}) == ["n0"]
    assert world.on() == {"n1": ""} and world.pilots.quarantine.nodes() == {"n0": "no such node"}
    assert world.pilots.to_submit({"n0": ""}) == []
    world.time += BACKOFF_S
    assert world.hold({"n0": ""}) == ["n0"]
    world.time += BACKOFF_S
    assert world.pilots.to_submit({"n0": ""}) == []
    world.time += BACKOFF_S
    world.scheduler.refuses = lambda pilot: ""
    assert world.hold({"n0": ""}) == []
    world.pilots.reports("n0")
    assert world.pilots.quarantine.nodes() == {}


def test_when_nothing_is_accepted_everything_waits_and_the_status_says_why(world: World) -> None:
    world.scheduler.refuses = lambda pilot: "invalid account"
    wanted = {f"n{i}": "" for i in range(IN_A_ROW)}
    world.hold(wanted)
    assert "invalid account" in world.trouble
    assert world.pilots.to_submit({"n3": ""}) == []
    world.scheduler.refuses = lambda pilot: ""
    world.time += BACKOFF_S
    world.hold({"n3": ""})
    assert world.trouble == "" and world.on() == {"n3": ""}


def test_nodes_without_room_say_nothing_of_others(world: World) -> None:
    for i in range(IN_A_ROW):
        world.machine.take(f"n{i}")
    world.hold({f"n{i}": "" for i in range(IN_A_ROW)})
    assert world.trouble == "" and len(world.pilots.quarantine.nodes()) == IN_A_ROW
    world.hold({"n3": ""})
    assert world.on() == {"n3": ""}


def test_a_pilot_called_off_while_it_is_submitted_does_not_stay(world: World) -> None:
    async def scenario() -> None:
        ordered = world.pilots.to_submit({"n0": ""})
        original = world.scheduler.submit

        async def slow(pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
            await original(pilot, secret, limit_s)
            world.lets_go(pilot.node)  # while its answer is on its way

        world.scheduler.submit = slow  # type: ignore[method-assign]
        await world.pilots.order(ordered, lambda node: None)

    asyncio.run(scenario())
    assert world.on() == {}


def test_a_slow_submission_is_not_taken_for_a_lost_one(world: World) -> None:
    async def scenario() -> None:
        original = world.scheduler.submit

        async def slow(pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
            world.time += LISTED_S + 1
            assert world.lost(()) == {}
            await original(pilot, secret, limit_s)

        world.scheduler.submit = slow  # type: ignore[method-assign]
        await world.pilots.order(world.pilots.to_submit({"n0": ""}), lambda node: None)

    asyncio.run(scenario())
    assert world.on() == {"n0": ""} and world.pilots.held.keys() == {"n0"}
    assert world.lost(()) == {}
    assert world.lost((), LISTED_S + 1).keys() == {"n0"}


def test_a_pilot_that_is_not_needed_goes_after_a_while_and_at_once_for_another_user(world: World) -> None:
    world.hold({"n0": "", "n1": ""})
    assert world.pilots.to_cancel({"n0": "", "n1": "bob"}, lambda node: False) == ["n1"]
    assert world.pilots.to_cancel({"n0": "", "n1": "bob"}, lambda node: True) == []
    world.time += 5
    assert world.pilots.to_cancel({"n1": ""}, lambda node: False) == []
    world.time += 10
    assert world.pilots.to_cancel({"n1": ""}, lambda node: False) == ["n0"]
    assert world.pilots.to_cancel({"n0": "", "n1": ""}, lambda node: False) == []


def test_a_pilot_that_does_not_start_is_lost_with_the_schedulers_reason(world: World) -> None:
    world.hold({"n0": ""})
    held = world.pilots.held["n0"]
    waiting = Pilot(tag=held.pilot.tag, node="n0", pending="AssocGrpNodeLimit")
    world.strays([waiting])
    world.time += 59
    assert world.lost([waiting]) == {}
    world.time += 2
    (reason,) = world.lost([waiting]).values()
    assert "AssocGrpNodeLimit" in reason
    world.agents.add("n0")
    assert world.lost([waiting]) == {}


def test_a_pilot_that_was_there_and_is_not_listed_any_more_is_gone(world: World) -> None:
    world.hold({"n0": ""})
    world.look()
    world.machine.pilots.clear()
    assert world.lost((), 1) == {"n0": "its pilot is gone"}


def test_a_node_whose_pilots_are_told_to_end_again_and_again_is_left_alone_ever_longer(world: World) -> None:
    waits = []
    for lived_s in (1.0, 1.0, 1.0, 1.0, 100.0, 1.0, 1.0):
        world.pilots.adopt(Pilot(tag="a", node="n0"))
        world.time += lived_s
        world.pilots.ends("n0")
        world.lets_go("n0")
        world.pilots.ends("n0")  # once a pilot
        began = world.time
        while "n0" in world.pilots.quarantine.nodes():
            world.time += 1.0
        waits.append(world.time - began)
    assert waits == [0.0, 10.0, 20.0, 40.0, 0.0, 0.0, 10.0]
