"""Choosing nodes for main jobs may take long: what goes on meanwhile, and what is gone when it is done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Claim, Pilot
from bftrainer.model.trainer import Points, Trainer
from bftrainer.nodes.lifecycle import NodePhase
from bftrainer.nodes.vacate import ClaimedNodes
from tests.support.nodes_world import CURVE, World, run


class SlowCurves:
    """Estimates that take until `go`; they tell `asked` in which thread."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: list[str] = []

    def __call__(self, trainers: Sequence[Trainer]) -> Mapping[int, Points]:
        self.asked.append(threading.current_thread().name)
        assert self.go.wait(20)
        return {t.id: CURVE for t in trainers}

    async def until_asked(self) -> None:
        while not self.asked:
            await asyncio.sleep(0.001)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[World, SlowCurves]]:
    def slow_world(nodes: int = 3, **given: object) -> tuple[World, SlowCurves]:
        world, curves = World(tmp_path, nodes, **given), SlowCurves()
        claimed = ClaimedNodes(world.trainers, curves)
        world.nodes.release._claimed = claimed
        return world, curves

    return slow_world


Make = Callable[..., tuple[World, SlowCurves]]


async def trains(world: World) -> None:
    """A trainer has all nodes."""
    await world.turn()
    await world.submit()
    await world.turn()


async def claimed(world: World, count: int) -> None:
    """A trainer has all nodes, and a main job could start on `count` of them."""
    await trains(world)
    world.machine.claims = (Claim(job="7", nodes=frozenset(world.machine.idle), count=count),)


def test_the_event_loop_goes_on_while_nodes_are_chosen_for_main_jobs(make: Make) -> None:
    async def scenario() -> None:
        world, curves = make()
        await claimed(world, 2)
        poll = asyncio.create_task(world.nodes.watch.poll())
        await curves.until_asked()
        assert not poll.done() and curves.asked[0].startswith("claims"), "in no thread that others use"
        await world.nodes.hold.check()
        curves.go.set()
        await poll
        await world.settle()
        assert len(world.held().split()) == 1

    run(scenario)


def test_what_goes_while_nodes_are_chosen_is_not_given_back_twice(make: Make) -> None:
    async def scenario() -> None:
        world, curves = make()
        await claimed(world, 3)
        poll = asyncio.create_task(world.nodes.watch.poll())
        await curves.until_asked()
        world.nodes.losses.misbehaves("n1", "its agent floods")
        curves.go.set()
        await poll
        await world.settle()
        assert world.held() == "" and world.pool == frozenset()
        assert sorted(world.machine.cancelled) == sorted(p.tag for p, _ in world.machine.submitted)
        assert world.pilots.records.nodes["n1"].phase is NodePhase.CLEARING, "as the others"

    run(scenario)


def test_a_node_whose_pilot_ends_while_nodes_are_chosen_gets_no_other_pilot(make: Make) -> None:
    async def scenario() -> None:
        world, curves = make()
        await claimed(world, 3)
        poll = asyncio.create_task(world.nodes.watch.poll())
        await curves.until_asked()
        world.nodes.release.drop(["n1"])
        curves.go.set()
        await poll
        world.decide()
        assert world.pool == frozenset() and world.pilots.to_submit({"n1": ""}) == []

    run(scenario)


def test_a_trainer_that_comes_while_nodes_are_chosen_has_no_part_in_it(make: Make) -> None:
    async def scenario() -> None:
        world, curves = make()
        await claimed(world, 2)
        poll = asyncio.create_task(world.nodes.watch.poll())
        await curves.until_asked()
        await world.submit("b")
        world.cancel(1)
        world.decide()
        curves.go.set()
        await poll
        assert len(world.pilots.records.releasing) == 2

    run(scenario)


def test_many_nodes_that_are_lost_at_once_are_one_event_and_one_command(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        world, _ = make(8)
        await trains(world)
        commands: list[Sequence[Pilot]] = []
        cancel = world.scheduler.cancel

        async def seen(pilots: Sequence[Pilot]) -> None:
            commands.append(pilots)
            await cancel(pilots)

        monkeypatch.setattr(world.scheduler, "cancel", seen)
        for node in world.pilots.held:
            world.pilots.reports(node)
        world.machine.pilots = []
        await world.nodes.watch.poll()
        (event,) = world.events
        assert isinstance(event, NodesChanged) and len(event.left) == 8
        await world.nodes.background.wait()
        assert [len(pilots) for pilots in commands] == [8]

    run(scenario)


def test_many_nodes_that_the_main_scheduler_takes_at_once_are_one_command(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        world, _ = make(8)
        await trains(world)
        commands: list[int] = []

        async def seen(pilots: Sequence[Pilot]) -> None:
            commands.append(len(pilots))

        monkeypatch.setattr(world.scheduler, "cancel", seen)
        for node in sorted(world.machine.idle)[:6]:
            world.machine.take(node)
        await world.nodes.watch.poll()
        await world.nodes.background.wait()
        assert commands == [6]

    run(scenario)
