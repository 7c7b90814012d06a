"""Which agents may stay, which trainers they may have, and where their messages go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from bftrainer.daemon.agents import AgentLink, AgentReports, devices_text
from bftrainer.model.machine import Pilot
from bftrainer.model.reports import Message
from bftrainer.model.trainer import TrainerSpec
from bftrainer.nodes import lifecycle
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.wire.messages.from_agent import Devices
from tests.support.nodes_world import World


class Heard:
    """The launcher and the way back, as far as agents reach them."""

    def __init__(self) -> None:
        self.up: list[tuple[str, set[int]]] = []
        self.words: list[Message] = []
        self.calls: list[tuple[str, str]] = []
        self.gpus: list[tuple[str, str, int, str]] = []

    def agent_up(self, node: str, inventory: list[Message], wanted: Collection[int]) -> None:
        self.up.append((node, set(wanted)))

    def has_gpus(self, node: str, user: str, count: int, reason: str) -> None:
        self.gpus.append((node, user, count, reason))

    def said(self, node: str, message: Message) -> None:
        self.words.append(message)

    def agent_leaves(self, node: str) -> None:
        self.calls.append(("leaves", node))

    def misbehaves(self, node: str, reason: str) -> None:
        self.calls.append(("misbehaves", node))

    def agent_down(self, node: str) -> None:
        self.calls.append(("down", node))


class Connections:
    """A hub to which every node is connected."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.has: dict[str, Devices] = {}

    def connected(self, node: str) -> bool:
        return node != "n9"

    def devices(self, node: str) -> Devices | None:
        return self.has.get(node)

    def has_devices(self, node: str, devices: Devices) -> None:
        self.has[node] = devices

    def send(self, node: str, message: Message) -> None:
        self.sent.append((node, message))


def spec(user: str) -> TrainerSpec:
    return TrainerSpec(name="a", command=("x",), n_min=1, n_max=2, user=user)


@pytest.fixture
def desk(tmp_path: Any) -> tuple[AgentReports, AgentLink, Heard, World]:
    world, heard = World(tmp_path, 2), Heard()
    link = AgentLink(Connections(), world.pilots, lambda spec: spec.user)  # type: ignore[arg-type]
    there = {1: spec("ann"), 2: spec("bob")}
    reports = AgentReports(
        *(link, world.pilots, heard, heard),  # type: ignore[arg-type]
        *(lambda node: there if node == "n0" else {}, Telemetry(), heard.has_gpus),
    )
    world.pilots.adopt(Pilot(tag="a", node="n0", user="ann"))
    return reports, link, heard, world


Desk = tuple[AgentReports, AgentLink, Heard, World]


def test_an_agent_may_stay_only_in_a_pilot_of_ours_that_is_not_released(desk: Desk) -> None:
    reports, _, heard, world = desk
    assert not reports.up("n0", "other", []) and not reports.up("n1", "a", [])
    before = world.pilots.records
    world.pilots.records = lifecycle.released(before, ["n0"], world.time, claimed=False)
    assert not reports.up("n0", "a", [])
    world.pilots.records = before
    assert heard.up == [] and not world.pilots.held["n0"].reported
    assert reports.up("n0", "a", [])
    assert heard.up == [("n0", {1})], "another user's trainer may not run there"
    assert world.pilots.held["n0"].reported


def test_agents_come_in_only_once_the_pilots_are_known(desk: Desk) -> None:
    reports = desk[0]
    assert not reports.is_open()
    reports.opened = True
    assert reports.is_open()


def test_a_link_serves_a_trainer_where_an_agent_of_its_user_is_connected(desk: Desk) -> None:
    link, world = desk[1], desk[3]
    world.pilots.adopt(Pilot(tag="b", node="n9", user="ann"))
    assert link.serves("n0", spec("ann"))
    assert not link.serves("n0", spec("bob")), "another user's agent"
    assert not link.serves("n9", spec("ann")), "no agent"


def test_admins_are_told_once_of_a_device_that_is_out_of_use(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    reports, link, _, _ = desk
    assert reports.up("n0", "a", [])
    assert link.devices("n0") == 0 and devices_text(link.devices_of("n0")) == ""
    devices = {"kind": "cuda", "count": 3, "out": ["2: 4 workers in a row failed on it"]}
    for _ in range(2):
        reports.said("n0", {"type": "devices", "devices": devices})
    assert link.devices("n0") == 3
    told = "3 cuda; out of use: 2: 4 workers in a row failed on it"
    assert devices_text(link.devices_of("n0")) == told
    assert len([line for line in caplog.records if "agent_failed" in line.getMessage()]) == 1
    for wrong in ({"count": -1}, {"count": 10**6}, {"kind": "a\n"}, {"out": ["x"] * 100}):
        with pytest.raises(ValueError):
            reports.said("n0", {"type": "devices", "devices": {**devices, **wrong}})
    assert link.devices("n0") == 3


def test_what_an_agent_says_of_its_devices_is_told_with_whom_they_do_not_suffice(desk: Desk) -> None:
    reports, link, heard, _ = desk
    link._hub.has["n0"] = Devices(kind="cuda", count=2)  # type: ignore[attr-defined]
    there = reports._trainers_on("n0")
    assert isinstance(there, dict)
    for workers in (0, 1, 2, 4):
        there[1] = replace(spec("ann"), workers=workers)
        there[2] = replace(spec("bob"), workers=8)
        heard.up.clear()
        assert reports.up("n0", "a", [])
    assert heard.gpus == [
        *[("n0", "ann", 2, "")] * 3,
        (
            "n0",
            "ann",
            2,
            "the pilot on n0 has 2 devices (cuda): too few for 4 workers, which get other nodes",
        ),
    ]


def test_a_goodbye_is_the_agents_own_and_all_else_the_launchers(desk: Desk) -> None:
    reports, _, heard, _ = desk
    reports.said("n0", {"type": "bye"})
    reports.said("n0", {"type": "ready", "trainer": 1})
    reports.down("n0")
    assert heard.calls == [("leaves", "n0"), ("down", "n0")]
    assert heard.words == [{"type": "ready", "trainer": 1}]


def test_an_agent_that_floods_loses_its_pilot_and_a_bound_is_told_with_its_user(desk: Desk) -> None:
    reports, _, heard, _ = desk
    reports.at_bound("max_messages_per_second", "n0", 20.0)
    reports.at_bound("max_newcomers", "", 512)
    assert [hits.text for hits in reports._telemetry.bounds.last_hour()] == [
        "max_messages_per_second: once, most by ann",
        "max_newcomers: once",
    ]
    reports.flooded("n0", "too much")
    assert heard.calls == [("misbehaves", "n0")]
    problems = reports._telemetry.troubles.texts
    assert problems(details=True) == ["an agent that sent too much was cut off: on n0: too much"]
    assert problems(details=False, blocking=False) == ["an agent that sent too much was cut off"]
    assert problems(details=False, blocking=True) == [], "the daemon does its work all the same"
