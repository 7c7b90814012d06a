"""Which nodes are held and given back, over a scheduler in memory."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bftrainer.model.events import Event, NodesChanged, UsersBarred
from bftrainer.model.machine import Claim, Operation, Pilot, Snapshot
from bftrainer.nodes.release import LEAD_S
from bftrainer.nodes.watch import POLL_SHARE
from tests.support.nodes_world import World, run


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., World]:
    def world(nodes: int = 3, **given: object) -> World:
        return World(tmp_path, nodes, **given)

    return world


Make = Callable[..., World]


def test_nodes_are_held_where_a_trainer_is_to_run_and_given_back_when_it_is_over(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        assert world.held() == "" and world.pool == {"n0", "n1", "n2"}
        await world.submit(n_max=2)
        assert world.held() == "n0 n1"
        world.cancel(1)
        await world.turn(1)
        await world.turn(9)
        assert world.held() == "n0 n1"  # somebody may want them soon
        await world.turn(2)
        assert world.held() == "" and world.pool == {"n0", "n1", "n2"}

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
        world.pilots.reports("n2")
        world.machine.failures = dict.fromkeys(("n0", "n2"), "its job failed: as ann")
        world.machine.pilots, world.agents = [], set()
        await world.turn()
        await world.turn()
        assert world.held() == "n1 n2", "n1's was cancelled, and n2's agent had been there"
        n0 = next(node for node in world.nodes.state.seen if node.name == "n0")
        assert world.nodes.state.reasons()[n0.name] == "its pilots were refused"
        assert (
            world.nodes.state.reasons(details=True)[n0.name] == "no pilot for a while: its job failed: as ann"
        )
        world.machine.failures = {}
        await world.turn(6)
        await world.turn()
        assert world.held() == "n0 n1 n2"

    run(scenario)
    lost = [r.fields for r in caplog.records if getattr(r, "event", "") == "pilot_lost"]
    assert sorted((f["nodes"], f["reason"]) for f in lost) == [
        ("n0", "its job failed: as ann"),
        ("n1", "its pilot is gone"),
        ("n2", "its pilot is gone"),
    ]


def test_no_poll_waits_for_the_reason_why_a_pilot_failed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world, answer, asked = make(), asyncio.Event(), []

        async def slow(pilots: Sequence[Pilot]) -> dict[Pilot, str]:
            asked.extend(pilots)
            await answer.wait()
            return {}

        monkeypatch.setattr(world.scheduler, "failures", slow)
        await world.turn()
        await world.submit()
        await world.turn()
        world.machine.pilots = [pilot for pilot in world.machine.pilots if pilot.node != "n0"]
        world.time += 1
        for _ in range(3):
            await world.nodes.watch.poll()
            await asyncio.sleep(0)
        assert [pilot.node for pilot in asked] == ["n0"], "once"
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n1"}), count=1),)
        await world.nodes.watch.poll()
        assert "n1" in world.pilots.records.releasing
        answer.set()
        await world.settle()
        assert "n0" not in world.pilots.held

    run(scenario)


def test_a_claim_takes_what_it_needs_and_nothing_comes_back_while_it_stands(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        world.machine.claims = (Claim(job="7", nodes=frozenset({"n0", "n1", "n2"}), count=2),)
        await world.turn()
        assert world.held() == "n2" and world.pool == {"n2"}
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
        assert world.pool == {"n0", "n2"}
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
        world.administer(Operation.PAUSED)
        world.machine.idle.add("n2")
        await world.turn()
        assert world.held() == "n0 n1" and world.pool == {"n0", "n1"}
        world.administer(Operation.DRAINING)
        await world.turn()
        await world.turn()
        assert world.held() == "" and world.pool == frozenset()
        world.administer(Operation.RUNNING)
        await world.turn()
        assert world.held() == "n0 n1 n2"

    run(scenario)


def test_nodes_kept_out_never_join_and_leave_when_they_are_named(make: Make) -> None:
    async def scenario() -> None:
        world = make(exclude_nodes="n[0-1]")
        await world.turn()
        assert world.pool == {"n2"}
        world.reload(exclude_nodes="n[1-2]")
        await world.turn()
        assert world.pool == {"n0"}

    run(scenario)


def test_a_node_that_is_kept_out_is_so_with_its_gpus(make: Make) -> None:
    async def scenario() -> None:
        world = make(exclude_nodes="n1")
        world.machine.idle = {"n0:0", "n0:1", "n1:0", "n1:1"}
        await world.turn()
        assert world.pool == {"n0:0", "n0:1"}

    run(scenario)


def test_a_refused_node_leaves_the_pool_until_it_may_be_tried_again(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        world.scheduler.refuses = lambda pilot: "bad node" if pilot.node == "n0" else ""
        await world.turn()
        await world.submit()
        assert world.held() == "n1 n2" and world.pool == {"n1", "n2"}
        await world.turn()
        assert world.pool == {"n1", "n2"}
        world.scheduler.refuses = lambda pilot: ""
        await world.turn(10)
        assert world.held() == "n0 n1 n2"

    run(scenario)


def test_a_user_whose_pilots_are_refused_is_barred_before_their_nodes_are_lost(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the plan in between takes nodes of others for it."""

    async def scenario() -> None:
        world = make()
        world.users = frozenset({"eve", "ann"})
        world.scheduler.refuses = lambda pilot: "sudo: a password is required"
        await world.turn()
        emit, told = world.nodes.state._emit, list[type[Event]]()

        def heard(event: Event) -> None:
            told.append(type(event))
            emit(event)

        monkeypatch.setattr(world.nodes.state, "_emit", heard)
        await world.submit(user="eve")
        assert told[-2:] == [UsersBarred, NodesChanged]

    run(scenario)


def test_nothing_is_ordered_while_the_scheduler_cannot_be_asked(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        world.telemetry.condition("scheduler", "3 polls failed")
        await world.submit()
        assert world.held() == ""
        world.telemetry.condition("scheduler", "")
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
        looks = asyncio.create_task(world.nodes.watch.run())
        while len(polls) < 4:
            world.nodes.wake()
            await world.nodes.watch.fresh_poll()
        looks.cancel()
        for (began, ended), (again, _) in itertools.pairwise(polls):
            assert again - ended >= (ended - began) * (1 / POLL_SHARE - 1)

    run(scenario)


def test_a_poll_that_lists_a_pilot_nobody_knows_has_it_cancelled(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit(n_max=1)
        world.machine.pilots += [Pilot(tag="stray", node="n2"), Pilot(tag="twin", node="n0")]
        await world.turn()
        assert sorted(world.machine.cancelled) == ["stray", "twin"] and world.held() == "n0"

    run(scenario)


def test_what_is_gone_by_itself_is_held_anew(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        await world.turn()
        world.machine.pilots = [pilot for pilot in world.machine.pilots if pilot.node != "n1"]
        await world.turn()
        assert world.pool == {"n0", "n2"}
        await world.turn()
        assert world.held() == "n0 n1 n2"

    run(scenario)


def test_a_node_goes_from_one_users_pilot_to_the_next_ones(make: Make) -> None:
    async def scenario() -> None:
        world = make(1, mode="site", socket="/run/x.sock", exec_prefix=["sudo", "-u", "{user}"])
        await world.turn()
        await world.submit("a", user="alice")
        assert [p.user for p in world.machine.pilots] == ["alice"]
        world.cancel(1)
        await world.submit("b", user="bob")
        await world.turn()
        assert [p.user for p in world.machine.pilots] == ["bob"]
        assert world.pool == {"n0"}

    run(scenario)


def test_an_agent_that_says_goodbye_takes_its_node_with_it(make: Make) -> None:
    async def scenario() -> None:
        world = make()
        await world.turn()
        await world.submit()
        world.agents = {"n0", "n1", "n2"}
        for node in world.agents:
            world.pilots.reports(node)
        world.nodes.losses.agent_leaves("n0")
        (event,) = world.events
        assert isinstance(event, NodesChanged) and event.vacated == {"n0"}
        await world.settle()
        assert world.workers.gone == [], "its workers leave at a step boundary"
        world.agents.discard("n0")
        world.nodes.losses.agent_down("n0")
        assert world.workers.gone == ["n0"]
        await world.turn()
        assert "n0" not in world.pool  # though its pilot is still listed

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
        assert world.held() == "n0 n1" and world.pool == {"n0", "n1"}
        world.machine.why = {}
        await world.turn()
        assert world.pool == {"n0", "n1", "n2"} and not world.machine.cancelled

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
        assert world.held() == "n1 n2" and world.pool == {"n1", "n2"}

    run(scenario)


def test_the_engines_pool_follows_from_the_events_of_the_nodes_alone(make: Make) -> None:
    async def scenario() -> None:
        world = make(8, debounce_s=1)
        chance = random.Random(1)
        for turn in range(60):
            node = f"n{chance.randrange(8)}"
            change = chance.choice(("take", "give", "gone", "leaves", "submit", "cancel", "nothing"))
            if change == "take":
                world.machine.take(node)
            elif change == "give":
                world.machine.idle.add(node)
            elif change == "gone":
                world.machine.pilots = [pilot for pilot in world.machine.pilots if pilot.node != node]
            elif change == "leaves":
                world.nodes.losses.agent_leaves(node)
            elif change == "submit":
                await world.submit(f"a{turn}", n_max=3)
            elif change == "cancel":
                world.cancel(chance.randrange(1, 5))
            await world.turn(chance.random())
            assert world.pool == world.nodes.state.nodes
            assert {node for t in world.trainers() for node in t.nodes} <= world.pool

    run(scenario)
