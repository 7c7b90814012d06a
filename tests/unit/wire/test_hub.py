"""The hub: which connections count, and what it passes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bftrainer.agent.connection import DaemonConnection
from tests.support.agents_desk import Desk, Message, at


def test_a_message_that_is_none_is_dropped_and_the_connection_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()

    async def story() -> None:
        async with desk.agent() as (send, _):
            for nonsense in ([], 3, None, "bye"):
                await send(nonsense)
            await send({"type": "bye"})
            await desk.until("up", "said")
        await desk.until("up", "said", "down")

    with caplog.at_level(logging.WARNING):
        at(desk, story)
    assert caplog.text.count("what is no message") == 4


def test_a_second_pilot_on_a_node_is_sent_away_and_the_first_stays() -> None:
    desk = Desk()

    async def story() -> None:
        async with desk.agent("first") as (send, _):
            async with desk.agent("second") as (_, hear):
                assert await hear() == {"type": "exit"}
            await send({"type": "bye"})
            await desk.until("up", "said")

    at(desk, story)


def test_an_agent_that_connects_again_takes_its_own_place() -> None:
    desk = Desk()

    async def story() -> None:
        dead = desk.agent()
        await dead.__aenter__()
        async with desk.agent() as (send, hear):
            await dead.__aexit__(None, None, None)
            await send({"type": "bye"})
            await desk.until("up", "up", "said")  # the end of the dead connection is no loss
            desk.hub.send("n", {"type": "warm"})
            assert await hear() == {"type": "warm"}
        await desk.until("up", "up", "said", "down")

    at(desk, story)


def test_an_agent_that_may_not_stay_is_told_to_end() -> None:
    desk = Desk()
    desk.stays = False

    async def story() -> None:
        async with desk.agent() as (_, hear):
            assert await hear() == {"type": "exit"}
            assert not desk.hub.connected("n")

    at(desk, story)
    assert [kind for kind, _ in desk.reports] == ["up"]


class Owner:
    """An agent with one worker that records its orders."""

    def __init__(self) -> None:
        self.orders: list[Message] = []

    def running(self) -> list[Message]:
        return [{"trainer": 1, "generation": 2, "run": 0, "phase": "member", "joined": 2}]

    def devices(self) -> Message:
        return {"kind": "", "count": 0, "out": []}

    def obey(self, order: Message) -> None:
        self.orders.append(order)

    async def give_up(self) -> None:
        raise AssertionError


def test_the_end_of_a_worker_without_a_connection_is_listed_and_then_told() -> None:
    desk, owner = Desk(), Owner()
    end = {"type": "exited", "trainer": 7, "started": 3, "run": 0, "phase": "leaving", "code": 0}

    async def story() -> None:
        known = desk.secret_of("t-n")
        connection = DaemonConnection(node="n", tag="t-n", secret=known, daemon=desk.address, orphan_s=60.0)
        connection.tell({"type": "progress", "trainer": 1})  # the next report will say as much
        connection.tell(end)
        keeping = asyncio.create_task(connection.keep(owner))
        await desk.until("up", "said")
        desk.hub.send("n", {"type": "kill", "trainer": 1})
        async with asyncio.timeout(10):
            while not owner.orders:
                await asyncio.sleep(0.01)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    at(desk, story)
    (_, (_, listed)), (_, told) = desk.reports[:2]
    ended = {"trainer": 7, "generation": 3, "run": 0, "phase": "leaving", "joined": 0, "workers": 1}
    assert listed == [*owner.running(), ended] and told == end


def test_the_end_of_a_worker_is_told_over_every_connection_until_the_daemon_has_heard_it() -> None:
    desk, owner = Desk(), Owner()
    about = {"trainer": 1, "started": 2, "run": 0}
    end = {"type": "exited", **about, "phase": "member", "code": 0}

    async def story() -> None:
        known = desk.secret_of("t-n")
        connection = DaemonConnection(node="n", tag="t-n", secret=known, daemon=desk.address, orphan_s=60.0)
        answers = iter([False])

        def is_open() -> bool:
            opened = next(answers, True)
            if not opened:
                connection.tell(end)  # the worker ends while its agent waits for an answer
            return opened

        desk.is_open = is_open  # type: ignore[method-assign]
        keeping = asyncio.create_task(connection.keep(owner))
        await desk.until("up", "said")
        async with desk.agent():  # takes its place, so that it has to connect again
            connection.tell({"type": "bye"})
            await desk.until("up", "said", "up", "up", "said")
            desk.hub.send("n", {"type": "heard", **about})
            desk.hub.send("n", {"type": "kill"})
            async with asyncio.timeout(10):
                while not owner.orders:
                    await asyncio.sleep(0.01)
        async with desk.agent():
            await desk.until("up", "said", "up", "up", "said", "up", "up")
            connection.tell({"type": "bye"})
            await desk.until("up", "said", "up", "up", "said", "up", "up", "said")
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    at(desk, story)
    assert [message["type"] for kind, message in desk.reports if kind == "said"] == [
        "exited",
        "exited",
        "bye",
    ]
    listed = [value[1] for kind, value in desk.reports if kind == "up"]
    assert [len(workers) for workers in listed if workers] == [2, 2, 1], "listed until it is heard"
