"""How nodes are given back: workers may be busy, agents come and go, the scheduler may not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bftrainer.errors import KeptError
from bftrainer.model.machine import Claim, Operation, Pilot
from bftrainer.nodes.pool import LISTED_S
from bftrainer.nodes.quarantine import OFTEN
from tests.support.nodes_world import World, run

EXIT = {"type": "exit"}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., World]:
    return lambda nodes=3, **given: World(tmp_path, nodes, **given)


Make = Callable[..., World]


async def trained(world: World) -> None:
    """A trainer has all nodes, and its workers run."""
    await world.turn()
    await world.submit()
    await world.turn()
    world.workers.on = set(world.machine.idle)


async def moment() -> None:
    """What goes on in the background gets a few turns."""
    await asyncio.sleep(0.05)


def test_workers_have_their_time_to_leave_and_no_more(make: Make) -> None:
    async def scenario() -> None:
        world = make(vacate_s=5)
        await trained(world)
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n0", "n1"}), count=2),)
        await world.nodes.watch.poll()
        world.workers.on.discard("n0")
        await moment()
        assert world.link.messages == [("n0", EXIT)] and world.held() == "n0 n1 n2"
        world.time += 4.9
        await moment()
        assert world.link.messages == [("n0", EXIT)], "n1's workers may still take 0.1 s"
        world.time += 0.1
        await world.nodes.background.wait()
        assert world.link.messages == [("n0", EXIT), ("n1", EXIT)] and world.held() == "n2"
        assert world.workers.gone == ["n0", "n1"]

    run(scenario)


def test_a_worker_with_a_state_to_write_has_the_time_that_the_site_gives_for_that(make: Make) -> None:
    async def scenario() -> None:
        world = make(vacate_s=1, vacate_write_s=10)
        await trained(world)
        world.agents |= {"n0", "n1"}
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n0", "n1"}), count=2),)
        await world.nodes.watch.poll()
        await moment()
        world.time += 1.0
        await moment()
        assert sorted(world.link.messages) == [("n0", EXIT), ("n1", EXIT)], "each is told once"
        assert world.workers.gone == [] and world.held() == "n0 n1 n2"
        world.workers.on.discard("n0")
        await moment()
        assert world.workers.gone == ["n0"], "its state is written"
        world.time += 10.0
        await world.nodes.background.wait()
        assert world.workers.gone == ["n0", "n1"] and world.held() == "n2"
        assert len(world.link.messages) == 2

    run(scenario)


def test_pilots_end_whatever_becomes_of_their_workers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(node: str, message: object) -> None:
        raise RuntimeError(node)

    async def scenario() -> None:
        world = make()
        await trained(world)
        monkeypatch.setattr(world.link, "send", broken)
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n0", "n1"}), count=2),)
        await world.nodes.watch.poll()
        with pytest.raises(RuntimeError):
            await world.nodes.background.wait()
        assert world.held() == "n2"

    run(scenario)


def test_a_node_that_is_given_up_is_not_held_again_while_its_pilot_is_listed(make: Make) -> None:
    async def scenario() -> None:
        world = make(vacate_s=5)
        await trained(world)
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n0"}), count=1),)
        await world.nodes.watch.poll()
        assert world.pilots.records.releasing == {"n0"}
        world.machine.claims = ()
        await world.nodes.watch.poll()
        world.decide()
        assert world.pool == {"n1", "n2"}
        assert world.pilots.to_submit({"n0": ""}) == []
        world.workers.on.clear()
        await world.nodes.background.wait()
        await world.turn()
        await world.turn()
        assert world.pool == {"n0", "n1", "n2"}

    run(scenario)


def test_what_vacates_a_node_ends_no_later_pilot_there(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = make(vacate_s=50)
        await trained(world)
        monkeypatch.setattr(
            world.workers, "agent_down", lambda node, **how: None
        )  # it stays busy all the while
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n0"}), count=1),)
        await world.nodes.watch.poll()
        await moment()
        world.machine.claims = ()
        (first,) = (pilot for pilot in world.machine.pilots if pilot.node == "n0")
        world.nodes.release.drop(["n0"])  # as where its agent does not come back
        await moment()
        await world.nodes.watch.poll()
        world.decide()
        await world.nodes.hold.check()
        await moment()
        assert world.held() == "n0 n1 n2" and first not in world.machine.pilots
        world.workers.on.clear()
        await world.nodes.background.wait()
        assert world.held() == "n0 n1 n2"

    run(scenario)


def test_a_dropped_node_is_dropped_everywhere(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await trained(world)
        world.nodes.release.drop(["n1"])
        await world.nodes.background.wait()
        assert world.workers.gone == ["n1"] and world.link.messages == [("n1", EXIT)]
        assert world.held() == "n0 n2" and world.pilots.held.keys() == {"n0", "n2"}

    run(scenario)


def test_draining_waits_for_the_workers_of_each_node(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await trained(world)
        world.workers.on.discard("n1")
        world.nodes.state.operation = Operation.DRAINING
        await world.turn()
        assert world.held() == "n0 n2" and world.pool == {"n0", "n2"}
        world.workers.on.clear()
        await world.turn()
        assert world.held() == ""

    run(scenario)


def test_a_pilot_that_is_gone_by_itself_says_nothing_against_its_node(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await trained(world)
        world.machine.pilots = [pilot for pilot in world.machine.pilots if pilot.node != "n1"]
        await world.turn()
        assert world.pilots.quarantine.nodes() == {}

    run(scenario)


def test_an_agent_that_comes_back_keeps_its_node(make: Make) -> None:
    async def scenario() -> None:
        world = make(reconnect_s=5)
        await trained(world)
        world.nodes.losses.agent_down("n1")
        await moment()
        world.agents.add("n1")
        async with asyncio.timeout(10):
            await world.nodes.background.wait()  # though the clock stands still
        assert world.pool == {"n0", "n1", "n2"} and world.workers.gone == []

    run(scenario)


def test_an_agent_that_comes_back_at_the_last_moment_keeps_its_node(make: Make) -> None:
    async def scenario() -> None:
        world = make(reconnect_s=5)
        await trained(world)
        poll = world.nodes.watch.fresh_poll

        async def slow() -> bool:
            changed = await poll()
            world.time += 5
            world.agents.add("n1")
            return changed

        world.nodes.watch.fresh_poll = slow  # type: ignore[method-assign]
        world.nodes.losses.agent_down("n1")
        await world.nodes.background.wait()
        assert world.workers.gone == [] and "n1" in world.pilots.held

    run(scenario)


def test_an_agent_that_does_not_come_back_loses_its_node(make: Make) -> None:
    async def scenario() -> None:
        world = make(reconnect_s=5)
        await trained(world)
        world.nodes.losses.agent_down("n1")
        await moment()
        assert world.workers.gone == []
        world.time += 5
        await world.nodes.background.wait()
        world.decide()
        assert world.workers.gone == ["n1"] and world.pool == {"n0", "n2"}

    run(scenario)


def test_a_daemon_that_stops_ends_every_pilot_that_the_scheduler_lists(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await trained(world)
        world.machine.pilots.append(Pilot(tag="late", node="n2"))  # its submission was never confirmed
        await world.nodes.release.close(world.time + 5)
        assert world.held() == "" and world.pilots.held == {}
        assert {node for node, message in world.link.messages if message == EXIT} == {"n0", "n1", "n2"}

    run(scenario)


def test_a_daemon_that_stops_asks_again_where_the_scheduler_does_not_answer(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await trained(world)
        world.scheduler.down = "no contact"
        closing = asyncio.create_task(world.nodes.release.close(world.time + 5))
        await moment()
        assert not closing.done()
        world.scheduler.down = ""
        await closing
        assert world.held() == ""

    run(scenario)


def test_a_daemon_that_stops_does_not_wait_long_for_a_scheduler_that_is_down(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await trained(world)
        world.scheduler.down = "no contact"
        closing = asyncio.create_task(world.nodes.release.close(world.time + 1000))
        await moment()
        world.time += 1.1
        async with asyncio.timeout(10):
            await closing

    run(scenario)


def test_a_pilot_whose_agent_misbehaves_ends_and_its_node_is_left_alone(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await trained(world)
        world.nodes.losses.misbehaves("n1", "its agent floods")
        await world.nodes.background.wait()
        assert ("n1", EXIT) in world.link.messages and world.held() == "n0 n2"
        assert world.pilots.quarantine.nodes() == {"n1": "its agent floods"}
        assert "n1" not in world.nodes.state.nodes

    run(scenario)


def test_agents_that_say_goodbye_soon_and_again_get_fewer_pilots(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        for refused in (set(), {"n1"}):
            world.pilots.adopt(Pilot(tag="a", node="n1"))
            world.nodes.losses.agent_leaves("n1")
            await world.nodes.background.wait()
            assert world.pilots.quarantine.nodes().keys() == refused

    run(scenario)


def test_pilots_that_main_jobs_have_end_soon_and_again_cost_their_user_nothing(make: Make) -> None:
    """Else one short job a minute, of whomever, keeps another user off all nodes."""

    async def scenario() -> None:
        world = make()
        world.machine.preempted = {"n1"}
        for _ in range(2 * OFTEN):
            for node in ("n1", "n2"):
                world.pilots.adopt(Pilot(tag=f"a-{node}", node=node, user="ann"))
                world.nodes.losses.agent_leaves(node)
            await world.nodes.background.wait()
            if world.pilots.quarantine.kept_off():
                break
        assert world.pilots.quarantine.kept_off() == {"ann": {"n2"}}

    run(scenario)


def test_so_do_pilots_that_main_jobs_have_before_their_agents_come(make: Make) -> None:
    """These jobs may be so short that no poll shows them."""

    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        for _ in range(2 * OFTEN):
            await world.turn()
            assert world.held() == "n0 n1 n2"
            world.machine.preempted = {"n0", "n1", "n2"}
            world.machine.pilots = []
            await world.turn(LISTED_S + 1)
            await world.nodes.background.wait()

    run(scenario)


@pytest.mark.parametrize("way", ["vacated", "dropped"])
def test_a_pilot_whose_user_keeps_it_is_cancelled_until_it_goes(make: Make, way: str) -> None:
    """Each try is lost, and the next one comes soon: a main job would wait through longer pauses."""

    async def scenario() -> None:
        world = make()
        await trained(world)
        world.workers.on.clear()
        tries: list[str] = []

        def keeps(pilot: Pilot) -> str:
            tries.append(pilot.node)
            return "scancel as eve was ended by a signal" if len(tries) < 5 else ""

        world.scheduler.keeps = keeps
        if way == "vacated":
            world.machine.claims = (Claim(job="7", nodes=frozenset({"n0"}), count=1),)
            await world.nodes.watch.poll()
        else:
            world.nodes.release.drop(["n0"])
        await world.nodes.background.wait()
        assert tries == ["n0"] * 5 and world.held() == "n1 n2", "with not a second gone on the world's clock"

    run(scenario)


def test_a_pilot_that_is_gone_though_nobody_could_cancel_it_is_not_tried_for_ever(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await trained(world)
        world.scheduler.keeps = lambda pilot: "no contact"
        world.nodes.release.drop(["n0"])
        await moment()
        world.machine.pilots = [pilot for pilot in world.machine.pilots if pilot.node != "n0"]
        await world.nodes.watch.poll()
        await world.nodes.background.wait()

    run(scenario)


def test_a_user_that_keeps_its_pilots_gets_no_more_for_a_while_and_others_do(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        eves = Pilot(tag="e" * 32, node="n0", user="eve")
        tries: list[str] = []

        async def kept(pilots: Sequence[Pilot]) -> None:
            tries.append("")
            if len(tries) < 3:
                raise KeptError("scancel as eve was ended by a signal")

        world.scheduler.cancel = kept  # type: ignore[method-assign]
        await world.turn()
        await world.pilots.end([eves])
        assert list(world.pilots.quarantine.barred()) == ["eve"]
        assert "was ended by a signal" in world.pilots.quarantine.barred()["eve"]
        assert [p.user for p in world.pilots.to_submit({"n1": "eve", "n2": "ann"})] == ["ann"]
        world.time += 3600
        assert world.pilots.quarantine.barred() == {}

    run(scenario)
