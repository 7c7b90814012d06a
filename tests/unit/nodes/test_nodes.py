"""What the daemon holds and lets go, over a scheduler in memory; no agent ever comes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from bftrainer.daemon.daemon import Daemon
from bftrainer.model.machine import Claim, Pilot, Snapshot
from bftrainer.model.trainer import Scalability, TrainerSpec
from bftrainer.nodes.nodes import LEAD_S, POLL_SHARE, Operation
from bftrainer.settings.sources import load
from bftrainer.store.sql import SqlStore
from bftrainer.testing.memory import Machine, MemoryScheduler


class World:
    """A daemon whose loops the test turns by hand, with a clock that the test moves."""

    def __init__(self, folder: Path, nodes: int, **given: object) -> None:
        self.time = 1e9
        self.machine = Machine({f"n{i}" for i in range(nodes)})
        self.scheduler = MemoryScheduler(self.machine, self.now)
        self.agents: set[str] = set()
        settings = load(
            {"state_dir": folder, "vacate_s": 0, "spare_s": 10, **given},
            environ={"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"},
        )
        self.store = SqlStore(settings.database)
        self.daemon = Daemon(settings, self.scheduler, self.store, self)
        self.daemon.recovering = False
        self.nodes = self.daemon.nodes
        self.daemon.hub.connected = self.nodes.pilots.connected = lambda node: node in self.agents  # type: ignore[method-assign]

    def now(self) -> float:
        return self.time

    async def turn(self, seconds: float = 1.0) -> None:
        """One look, what follows from it, and the orders that come of that."""
        self.time += seconds
        await self.nodes._poll()
        await self.settle()

    async def settle(self) -> None:
        daemon = self.daemon
        while not daemon._events.empty():
            await daemon._take(daemon._events.get_nowait())
        await self.nodes._hold()
        while self.nodes._tasks:
            await asyncio.gather(*self.nodes._tasks)
        while not daemon._events.empty():
            await daemon._take(daemon._events.get_nowait())

    async def submit(self, name: str = "a", n_max: int = 8, user: str = "") -> None:
        spec = TrainerSpec(
            name=name,
            command=("x",),
            n_min=1,
            n_max=n_max,
            samples=10,
            user=user,
            curve=((8, 80.0),),
            scalability=Scalability.GIVEN,
        )
        await self.daemon.submit(spec)
        await self.settle()

    def held(self) -> str:
        return " ".join(sorted(pilot.node for pilot in self.machine.pilots))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., World]:
    def world(nodes: int = 3, **given: object) -> World:
        return World(tmp_path, nodes, **given)

    return world


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


Make = Callable[..., World]


def test_nodes_are_held_where_a_trainer_is_to_run_and_given_back_when_it_is_over(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        assert world.held() == "" and world.daemon.state.pool == {"n0", "n1", "n2"}
        await world.submit(n_max=2)
        assert world.held() == "n0 n1"
        world.daemon.cancel(1)
        await world.turn(1)
        await world.turn(9)
        assert world.held() == "n0 n1"  # somebody may want them soon
        await world.turn(2)
        assert world.held() == "" and world.daemon.state.pool == {"n0", "n1", "n2"}

    run(scenario)


def test_no_pilot_goes_to_a_node_that_a_main_job_has_been_given_since_the_last_look(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        asked: list[str] = []
        world.scheduler.refuses = lambda pilot: asked.append(pilot.node) or ""  # type: ignore[func-returns-value]
        await world.turn()
        world.machine.take("n1")
        await world.submit(n_max=2)
        await world.settle()
        assert asked == ["n0", "n2"]

    run(scenario)


def test_a_node_whose_pilots_fail_is_left_alone_and_only_admins_are_told_why(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        await world.turn()
        world.agents = {"n2"}
        world.nodes.pilots.reports("n2")
        world.machine.failures = dict.fromkeys(("n0", "n2"), "its job failed: as ann")
        world.machine.pilots, world.agents = [], set()
        await world.turn()
        await world.turn()
        assert world.held() == "n1 n2", "n1's was cancelled, and n2's agent had been there"
        n0 = next(node for node in world.nodes.seen if node.name == "n0")
        assert world.nodes.why_not(n0) == "its pilots were refused"
        assert world.nodes.why_not(n0, whole=True) == "no pilot for a while: its job failed: as ann"
        world.machine.failures = {}
        await world.turn(6)
        await world.turn()
        assert world.held() == "n0 n1 n2"

    run(scenario)
    lost = [r.fields for r in caplog.records if getattr(r, "event", "") == "pilot_lost"]
    assert [(f["nodes"], f["reason"]) for f in lost] == [
        ("n0", "its job failed: as ann"),
        ("n1", "its pilot is gone"),
        ("n2", "its pilot is gone"),
    ]


def test_a_claim_takes_what_it_needs_and_nothing_comes_back_while_it_stands(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n0", "n1", "n2"}), count=2),)
        await world.turn()
        assert world.held() == "n2" and world.daemon.state.pool == {"n2"}
        world.machine.claims = ()
        for node in ("n0", "n1"):
            world.machine.take(node)
        await world.turn()
        world.machine.idle |= {"n0", "n1"}
        await world.turn()
        assert world.held() == "n0 n1 n2"

    run(scenario)


def test_a_pilot_ends_before_its_hole_does(make: Make) -> None:
    async def scenario() -> None:
        world = make(min_hole_s=30)
        world.machine.until = {"n0": world.time + 100, "n1": world.time + 20}
        await world.turn()
        assert world.daemon.state.pool == {"n0", "n2"}
        await world.submit()
        world.agents = {"n0", "n2"}
        limits = {pilot.node: limit for pilot, limit in world.machine.submitted}
        assert limits == {"n0": 99.0, "n2": None}
        await world.turn(99 - LEAD_S)
        assert world.held() == "n0 n2"
        await world.turn(1)
        assert world.held() == "n2"

    run(scenario)


def test_paused_nothing_joins_and_drained_everything_goes_until_resumed(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        world.machine.take("n2")
        await world.turn()
        await world.submit()
        world.daemon.administer(Operation.PAUSED)
        world.machine.idle.add("n2")
        await world.turn()
        assert world.held() == "n0 n1" and world.daemon.state.pool == {"n0", "n1"}
        world.daemon.administer(Operation.DRAINING)
        await world.turn()
        await world.turn()
        assert world.held() == "" and world.daemon.state.pool == frozenset()
        world.daemon.administer(Operation.RUNNING)
        await world.turn()
        assert world.held() == "n0 n1 n2"

    run(scenario)


def test_a_restart_changes_nothing_about_a_pause(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        world.daemon.administer(Operation.PAUSED)
        again = Daemon(world.daemon.settings, world.scheduler, world.store, world)
        await again._recover(again._remembered())
        assert again.nodes.operation is Operation.PAUSED

    run(scenario)


def test_nodes_kept_out_never_join_and_leave_when_they_are_named(make: Make) -> None:
    async def scenario() -> None:
        world = make(exclude_nodes="n[0-1]")
        await world.turn()
        assert world.daemon.state.pool == {"n2"}
        world.daemon.reload(world.daemon.settings.model_copy(update={"exclude_nodes": "n[1-2]"}))
        await world.turn()
        assert world.daemon.state.pool == {"n0"}

    run(scenario)


def test_a_refused_node_leaves_the_pool_until_it_may_be_tried_again(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        world.scheduler.refuses = lambda pilot: "bad node" if pilot.node == "n0" else ""
        await world.turn()
        await world.submit()
        assert world.held() == "n1 n2" and world.daemon.state.pool == {"n1", "n2"}
        await world.turn()
        assert world.daemon.state.pool == {"n1", "n2"}
        world.scheduler.refuses = lambda pilot: ""
        await world.turn(10)
        assert world.held() == "n0 n1 n2"

    run(scenario)


def test_nothing_is_ordered_while_the_scheduler_cannot_be_asked(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        world.nodes.poll_status.trouble = "3 polls failed"
        await world.submit()
        assert world.held() == ""
        world.nodes.poll_status.trouble = ""
        await world.turn()
        assert world.held() == "n0 n1 n2"

    run(scenario)


def test_a_slow_scheduler_is_asked_the_less_whoever_wants_to_look(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        polls: list[tuple[float, float]] = []
        poll = world.scheduler.poll

        async def slow() -> Snapshot:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            snapshot = await poll()
            polls.append((began, time.monotonic()))
            return snapshot

        world.scheduler.poll = slow  # type: ignore[method-assign]
        looks = asyncio.create_task(world.nodes.poll_for_ever())
        while len(polls) < 4:
            world.nodes.wake()
            await world.nodes._fresh_poll()
        looks.cancel()
        for (began, ended), (again, _) in itertools.pairwise(polls):
            assert again - ended >= (ended - began) * (1 / POLL_SHARE - 1)

    run(scenario)


def test_what_is_gone_by_itself_is_held_anew(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        await world.turn()
        world.machine.pilots = [pilot for pilot in world.machine.pilots if pilot.node != "n1"]
        await world.turn()
        assert world.daemon.state.pool == {"n0", "n2"}
        await world.turn()
        assert world.held() == "n0 n1 n2"

    run(scenario)


def test_a_node_goes_from_one_users_pilot_to_the_next_ones(make: Make) -> None:
    async def scenario() -> None:
        world = make(1, mode="site", socket="/run/x.sock", exec_prefix=["sudo", "-u", "{user}"])
        await world.turn()
        await world.submit("a", user="alice")
        assert [p.user for p in world.machine.pilots] == ["alice"]
        world.daemon.cancel(1)
        await world.submit("b", user="bob")
        await world.turn()
        assert [p.user for p in world.machine.pilots] == ["bob"]
        assert world.daemon.state.pool == {"n0"}

    run(scenario)


def test_an_agent_that_says_goodbye_takes_its_node_with_it(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        world.agents = {"n0", "n1", "n2"}
        for pilot in world.machine.pilots:
            world.daemon.up(pilot.node, pilot.tag, [])
        assert world.daemon.launcher.workers(1).keys() == {"n0", "n1", "n2"}
        world.daemon.said("n0", {"type": "bye"})
        (event,) = world.daemon._events._queue  # type: ignore[attr-defined]
        assert event.vacated == {"n0"}
        await world.settle()
        world.agents.discard("n0")
        world.nodes.agent_down("n0")
        assert world.daemon.launcher.workers(1).keys() == {"n1", "n2"}
        await world.turn()
        assert "n0" not in world.daemon.state.pool  # though its pilot is still listed

    run(scenario)


@pytest.mark.parametrize("word", ["unknown", "not responding", "unknown+not responding"])
def test_a_scheduler_that_has_just_been_restarted_costs_no_node(make: Make, word: str) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit(n_max=2)
        await world.turn()
        world.machine.why = dict.fromkeys(("n0", "n1", "n2"), word)
        await world.turn()
        assert world.held() == "n0 n1" and world.daemon.state.pool == {"n0", "n1"}
        world.machine.why = {}
        await world.turn()
        assert world.daemon.state.pool == {"n0", "n1", "n2"} and not world.machine.cancelled

    run(scenario)


@pytest.mark.parametrize("word", ["drain", "down+not responding", "job 7"])
def test_a_node_that_is_taken_from_us_is_let_go(make: Make, word: str) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        await world.turn()
        world.machine.why = {"n0": word}
        await world.turn()
        assert world.held() == "n1 n2" and world.daemon.state.pool == {"n1", "n2"}

    run(scenario)


def test_pilots_that_run_are_taken_over_though_the_scheduler_does_not_know_its_nodes_yet(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        world.machine.pilots = [Pilot(tag="a", node="n0"), Pilot(tag="b", node="n1", pending="Resources")]
        world.machine.why = dict.fromkeys(("n0", "n1", "n2"), "unknown")
        await world.daemon._survey()
        assert world.held() == "n0" and world.nodes.pilots.held.keys() == {"n0"}

    run(scenario)


def test_pilots_of_an_earlier_daemon_that_nobody_needs_are_ended(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        world.machine.pilots = [Pilot(tag="old", node="n0"), Pilot(tag="twin", node="n0")]
        daemon = world.daemon
        daemon.settings = daemon.settings.model_copy(update={"reconnect_s": 0.0})
        await daemon._recover(daemon._remembered())
        await world.settle()
        await world.turn()
        assert world.held() == "" and sorted(world.machine.cancelled) == ["old", "twin"]

    run(scenario)
