"""Nodes that went to main jobs a moment ago: no others go as well, and none comes back at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Claim, Pilot
from bftrainer.model.main_jobs import MainJob
from bftrainer.nodes import lifecycle
from tests.support.nodes_world import World, run


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., World]:
    return lambda nodes=5, **given: World(tmp_path, nodes, **given)


Make = Callable[..., World]


async def trained(world: World, *, busy: bool = True) -> None:
    """A trainer has all nodes, with an agent on each."""
    await world.turn()
    await world.submit()
    await world.turn()
    world.agents = set(world.machine.idle)
    if busy:
        world.workers.on = set(world.machine.idle)


def claim(world: World, count: int) -> Claim:
    return Claim(job="7", nodes=frozenset(world.machine.idle), count=count)


async def vacating(make: Make) -> World:
    """A main job wants two nodes, whose workers are busy: we give back n0 and n1."""
    world = make(vacate_s=5)
    await trained(world)
    world.machine.claims = (claim(world, 2),)
    await world.nodes.watch.poll()
    assert world.pilots.records.releasing == {"n0", "n1"}
    return world


def test_what_the_scheduler_takes_meanwhile_spares_as_many_of_ours(make: Make) -> None:
    """It decides a moment after the poll, and takes other nodes than we have chosen."""

    async def scenario() -> None:
        world = await vacating(make)
        for node in ("n1", "n3"):  # of these we have chosen one as well
            world.nodes.losses.agent_leaves(node)
            world.agents.discard(node)
            world.machine.take(node)
        world.workers.on.clear()
        world.machine.claims = ()
        await world.nodes.background.wait()
        assert world.held() == "n0 n2 n4"
        await world.turn()
        assert world.pool == {"n0", "n2", "n4"} and world.submitted == 1

    run(scenario)


def test_a_pilot_of_ours_that_has_ended_as_told_spares_no_other(make: Make) -> None:
    """Of two nodes for one main job the first is clear at once, and polls see its pilot gone."""

    async def scenario() -> None:
        world = await vacating(make)
        world.workers.on.discard("n0")
        await asyncio.sleep(0.05)
        assert [node for node, _ in world.link.messages] == ["n0"]
        world.agents.discard("n0")
        world.machine.pilots = [pilot for pilot in world.machine.pilots if pilot.node != "n0"]
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n1", "n2"}), count=1),)
        await world.nodes.watch.poll()
        await asyncio.sleep(0.05)
        assert "n1" in world.pilots.records.releasing
        world.workers.on.clear()
        await world.nodes.background.wait()
        assert "n1" not in world.held()

    run(scenario)


def test_a_node_that_was_given_back_rests_before_it_joins_again(make: Make) -> None:
    async def scenario() -> None:
        world = make(rejoin_s=3)
        await trained(world, busy=False)
        world.machine.claims = (claim(world, 1),)
        await world.turn()
        world.machine.claims = ()
        (gone,) = set(world.machine.idle) - set(world.held().split())
        submitted = len(world.machine.pilots)
        await world.turn(1.0)
        await world.turn(1.0)
        assert gone not in world.pool and len(world.machine.pilots) == submitted
        assert world.nodes.state.reasons()[gone] == "given back a moment ago (rejoin_s)"
        await world.turn(1.0)
        assert gone in world.pool and gone in world.held()

    run(scenario)


def test_only_what_was_taken_since_we_chose_counts_and_once(make: Make) -> None:
    world = make(7)
    release, pilots = world.nodes.release, world.pilots
    claims, since = [Claim(job="7", nodes=frozenset({f"n{i}" for i in range(9)}), count=3)], {"n2": 1.0}
    for i in range(7):
        pilots.adopt(Pilot(tag=f"t{i}", node=f"n{i}"))
    for node, at in (("n1", 1.0), ("n2", 2.5), ("n3", 2.5)):
        pilots.records = lifecycle.taken(pilots.records, [node], at)
    needed = release._still_needed(frozenset({"n2", "n4", "n5"}), frozenset(), 2.0, claims, since)
    assert lifecycle.taken_since(pilots.records, 2.0) == {"n2", "n3"}
    assert needed == {"n2", "n4"}, "n3 spares the one that we have held least long"
    assert release._spared(needed, claims, since) == set()
    pilots.records = lifecycle.taken(pilots.records, ["n6"], 3.0)
    assert release._spared({"n4"}, claims, since) == {"n4"}


def test_what_the_scheduler_takes_while_we_choose_spares_as_many(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        world = make(vacate_s=5)
        await trained(world)
        release = world.nodes.release
        choose = release._claimed.choose

        async def slowly(*asked: Any) -> frozenset[str]:
            found = await choose(*asked)
            world.nodes.losses.agent_leaves("n3")
            return found

        monkeypatch.setattr(release._claimed, "choose", slowly)
        world.machine.claims = (claim(world, 2),)
        await world.nodes.watch.poll()
        assert world.pilots.records.releasing == {"n0", "n3"}
        world.workers.on.clear()
        await world.nodes.background.wait()

    run(scenario)


def test_which_main_job_took_a_node_by_itself_is_told_once_as_soon_as_a_poll_shows_it(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await trained(world, busy=False)
        world.nodes.losses.agent_leaves("n3")
        world.decide()
        assert world.pool == {"n0", "n1", "n2", "n4"}
        world.machine.take("n3")
        began = world.time + 0.5
        job = MainJob(job="9", nodes=2, submitted=began, started=began, on=frozenset({"n3", "n9"}))
        world.machine.main = (job,)
        world.time += 1.0
        for told in ([{"9": {"n3"}}], []):
            await world.nodes.watch.poll()
            changes = [event for event in world.events if isinstance(event, NodesChanged)]
            assert [event.jobs for event in changes if event.jobs] == told
            assert not any(event.left or event.joined for event in changes)
            await world.settle()
            world.time += 1.0

    run(scenario)
