"""Nodes that run several workers: how many each is told to start, and what the others hear of that."""

from __future__ import annotations

from typing import Any

import pytest

from bftrainer.launch.native.launcher import MAX_ENTRIES, NativeLauncher
from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.trainer import TrainerSpec
from bftrainer.wire.messages.from_agent import Running
from tests.support.messages import report
from tests.support.remembering_ports import FOLDERS, RememberingPorts


class World(RememberingPorts):
    """A native trainer on nodes with these devices."""

    def __init__(self, workers: int = 0, **devices: int) -> None:
        super().__init__()
        self.has = devices
        self.launcher = NativeLauncher(self, self.events.append, self, FOLDERS, grace_s=5.0)
        self.launcher.add(
            1, TrainerSpec(name="a", command=("x",), n_min=1, n_max=4, samples=9, workers=workers)
        )

    def start(self, *nodes: str) -> None:
        for node in nodes:
            self.launcher.perform(StartWorker(trainer=1, generation=1, node=node))
            self.launcher.reported(node, report("ready"))

    def publish(self, generation: int, *members: str) -> None:
        self.launcher.perform(Regroup(trainer=1, generation=generation, members=members))

    def told(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        return [(node, message) for node, message in self.sent if message["type"] == kind]


@pytest.mark.parametrize(("workers", "devices", "expected"), [(0, 0, 1), (0, 4, 4), (3, 4, 3), (2, 0, 2)])
def test_a_node_runs_as_many_workers_as_the_spec_says_or_as_it_has_devices(
    workers: int, devices: int, expected: int
) -> None:
    world = World(workers, n=devices)
    world.start("n")
    assert [message["workers"] for _, message in world.told("start")] == [expected]


def test_members_are_told_how_many_workers_each_runs() -> None:
    world = World(a=2, b=4)
    world.start("a", "b", "c")
    world.publish(2, "b", "c", "a")
    assert [message["workers"] for _, message in world.told("regroup")] == [[4, 1, 2]] * 3


def test_where_each_runs_one_nothing_is_said_of_it() -> None:
    world = World()
    world.start("a", "b")
    world.publish(2, "a", "b")
    assert all("workers" not in message for _, message in world.told("regroup"))


def test_what_runs_when_the_daemon_starts_again_keeps_its_number() -> None:
    world = World(a=1)
    found = Running(trainer=1, generation=1, run=0, phase="member", joined=0, workers=4)  # type: ignore[arg-type]
    world.launcher.agent_up("a", [found], {1})
    world.publish(2, "a")
    assert world.told("regroup")[0][1]["workers"] == [4]


def test_a_device_less_changes_the_next_start_and_not_what_runs() -> None:
    world = World(a=4)
    world.start("a")
    world.has["a"] = 3
    world.publish(2, "a")
    assert world.told("regroup")[0][1]["workers"] == [4]
    world.launcher.reported("a", report("exited", phase="member", code=1, reason="", last={}))
    world.launcher.perform(StartWorker(trainer=1, generation=3, node="a"))
    assert [message["workers"] for _, message in world.told("start")] == [4, 3]


def test_a_node_sets_as_many_entries_in_a_rendezvous_as_its_workers_may() -> None:
    world = World(a=2)
    world.start("a", "b")
    world.publish(2, "a", "b")
    for i in range(3 * MAX_ENTRIES):
        for node in ("a", "b"):
            world.launcher.reported(node, report("kv", generation=2, key=str(i), value=""))
    heard = [node for node, _ in world.told("kv")]
    assert (heard.count("b"), heard.count("a")) == (2 * MAX_ENTRIES, MAX_ENTRIES)
