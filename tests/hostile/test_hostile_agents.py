"""Agents that attack: processes that know the secret of their own pilot, as every user can have one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from tests.support.hostile.agent import posing
from tests.support.hostile.attacks import attacking
from tests.support.hostile.world import BAD, GOOD, SOON_S, Watch, World

GIVEN_S = 0.3
WORKER = {"trainer": 1, "generation": 1, "run": 0, "phase": "member", "joined": 1}
END = {"type": "exited", "trainer": 1, "started": 1, "run": 0, "code": 0, "phase": "member", "reason": ""}


def nested(depth: int) -> Any:
    """Lists in lists."""
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


class Attack:
    """What an agent does to the daemon: the pilot is the attacker's own, its true agent is thrown out."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.other(BAD)
        self.node = world.node_of(BAD)
        self.tag, self.secret = world.secret(self.node)

    def say(self, *messages: Any, workers: Sequence[Any] = ()) -> None:
        """Connect with this list of workers and say these messages."""

        async def attack() -> None:
            async with posing(self.world.agents_at, self.node, self.tag, self.secret, list(workers)) as agent:
                for message in messages:
                    agent.say(message)
                    await agent.sent()
                await asyncio.sleep(GIVEN_S)

        asyncio.run(attack())


def end(world: World, watch: Watch) -> None:
    """Nothing is harmed, and the node of the attack serves others afterwards."""
    watch.assert_unharmed()
    world.cancel(BAD)
    world.other("next")
    world.until(lambda: len(world.trainer(GOOD)["members"]) == 3, SOON_S, "all nodes are used again")
    world.cancel("next")


MESSAGES: dict[str, list[Any]] = {
    "no object": [None, 1, "x", [], [[]], True, 1e308],
    "no kind": [{}, {"type": None}, {"type": []}, {"type": "\ud800"}, {"type": "x" * 100_000}],
    "nested": [nested(900), {"type": nested(900)}, {"type": "worker", "said": nested(50_000)}],
    "surrogates": [{**END, "reason": "\ud800", "last": {"type": "\ud800"}}, {"\ud800": 1, "type": "bye\0"}],
    "numbers": [{**END, "code": code, "trainer": code} for code in (10**400, -1, 1e309, float("nan"), True)],
    "long": [{**END, "reason": "x" * 8_000_000}, {"type": "worker", "said": {"x" * 4_000_000: 1}}],
    "others": [{**END, "trainer": n, "started": m} for n in range(4) for m in range(8)] + [{"type": "hello"}],
    "bye": [{"type": "bye"}] * 20,
}


def test_no_message_of_an_agent_harms_daemon_main_jobs_or_other_trainers(world: World) -> None:
    with world.watched() as watch:
        attack = Attack(world)
        for kind, messages in MESSAGES.items():
            attack.say(*messages)
            assert world.running(), kind
    end(world, watch)


INVENTORIES: dict[str, list[Any]] = {
    "nested": [nested(250)],
    "nested deep": [nested(900)],
    "no workers": [None, 1, "x", {}, {"trainer": "1"}, {**WORKER, "phase": "\ud800"}],
    "others' trainers": [{**WORKER, "trainer": n, "generation": 10**12, "joined": 10**12} for n in range(10)],
    "many": [WORKER] * 50_000,
}


def test_no_list_of_workers_makes_a_node_unusable(world: World) -> None:
    with world.watched() as watch:
        attack = Attack(world)
        for kind, workers in INVENTORIES.items():
            attack.say(workers=workers)
            assert world.running(), kind
    end(world, watch)


def test_an_agent_cannot_speak_for_the_node_of_another_pilot(world: World) -> None:
    with world.watched() as watch:
        attack = Attack(world)
        attack.node = next(node for node in world.agents_of(GOOD))
        attack.say({"type": "bye"})
        attack.say(workers=[{**WORKER, "trainer": n} for n in range(10)])
    end(world, watch)


def test_many_connections_of_one_agent_harm_nothing(world: World) -> None:
    async def connect(attack: Attack) -> None:
        while True:
            async with posing(world.agents_at, attack.node, attack.tag, attack.secret):
                pass

    async def connect_often(attack: Attack) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * GIVEN_S):
                await asyncio.gather(*(connect(attack) for _ in range(20)))

    with world.watched() as watch:
        asyncio.run(connect_often(Attack(world)))
    end(world, watch)


def test_a_flood_of_an_agent_harms_nothing(world: World) -> None:
    attack = Attack(world)
    about = {"trainer": world.trainer(BAD)["id"], "run": 0}
    said = {"type": "joined", "generation": 1, "step": 1, "size": 1, "survivor": True, "pause_s": 0.1}
    messages = [{"type": "worker", **about, "started": n, "said": said} for n in range(1, 40)]
    messages += [{"type": "worker", **about, "started": 1, "said": {"type": "kv", "x": "x" * 100_000}}]
    who = {"node": attack.node, "tag": attack.tag, "secret": attack.secret}
    with (
        world.watched() as watch,
        attacking("agent_flood", at=world.agents_at, messages=messages, **who),
    ):
        watch.until_jobs(5)
    end(world, watch)
