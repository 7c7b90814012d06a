"""The hub: which connections count, and what it passes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bftrainer.agent.connection import Connection
from bftrainer.api.listen import bind
from bftrainer.wire import seal
from bftrainer.wire.hub import Hub

Message = dict[str, Any]


class Desk:
    """A hub on a port, and what it reports."""

    def __init__(self) -> None:
        self.stays = True
        self.reports: list[tuple[str, Any]] = []
        self.hub = Hub(self.secret_of)
        self.hub.listen(self)
        self.address = ""

    def secret_of(self, tag: str) -> str:
        return f"secret of {tag}"

    def is_open(self) -> bool:
        return True

    def up(self, node: str, tag: str, inventory: list[Message]) -> bool:
        self.reports.append(("up", (tag, inventory)))
        return self.stays

    def down(self, node: str) -> None:
        self.reports.append(("down", node))

    def said(self, node: str, message: Message) -> None:
        self.reports.append(("said", message))

    @asynccontextmanager
    async def agent(self, tag: str = "t") -> AsyncIterator[tuple[Callable[[Any], Any], Callable[[], Any]]]:
        """A connection that introduces itself as an agent's; how it sends and hears messages."""
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://{self.address}/v1/agent") as ws,
        ):
            challenge = (await ws.receive_json())["nonce"]
            ours, theirs = seal.seals(self.secret_of(tag), challenge, "mine")

            async def send(message: Any) -> None:
                await ws.send_str(ours.put(message))

            async def hear() -> Any:
                frame = await ws.receive()
                return theirs.take(frame.data) if frame.type is aiohttp.WSMsgType.TEXT else None

            await send({"type": "hello", "node": "n", "tag": tag, "nonce": "mine", "workers": []})
            assert (await hear())["type"] == "welcome"
            yield send, hear

    async def until(self, *reports: str) -> None:
        """Wait until these kinds of reports have been made, and no others."""
        async with asyncio.timeout(10):
            while [kind for kind, _ in self.reports] != list(reports):
                await asyncio.sleep(0.01)


def at(desk: Desk, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Tell a story while the hub is served."""

    async def whole() -> None:
        app = web.Application()
        app.router.add_get("/v1/agent", desk.hub.serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        bound = bind("127.0.0.1:0")
        await web.SockSite(runner, bound).start()
        desk.address = f"127.0.0.1:{bound.getsockname()[1]}"
        try:
            async with asyncio.timeout(20):
                await story()
        finally:
            await runner.cleanup()

    asyncio.run(whole())


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

    def obey(self, order: Message) -> None:
        self.orders.append(order)

    async def give_up(self) -> None:
        raise AssertionError


def test_the_end_of_a_worker_without_a_connection_is_listed_and_then_told() -> None:
    desk, owner = Desk(), Owner()
    end = {"type": "exited", "trainer": 7, "started": 3, "run": 0, "phase": "leaving", "code": 0}

    async def story() -> None:
        known = desk.secret_of("t")
        connection = Connection(node="n", tag="t", secret=known, daemon=desk.address, orphan_s=60.0)
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
    ended = {"trainer": 7, "generation": 3, "run": 0, "phase": "leaving", "joined": 0}
    assert listed == [*owner.running(), ended] and told == end


def test_the_end_of_a_worker_is_told_once_though_the_first_hello_came_too_early() -> None:
    desk, owner = Desk(), Owner()
    end = {"type": "exited", "trainer": 1, "started": 2, "run": 0, "phase": "member", "code": 0}

    async def story() -> None:
        known = desk.secret_of("t")
        connection = Connection(node="n", tag="t", secret=known, daemon=desk.address, orphan_s=60.0)
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
            await desk.until("up", "said", "up", "up")
            connection.tell({"type": "bye"})
            await desk.until("up", "said", "up", "up", "said")
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    at(desk, story)
    assert [message["type"] for kind, message in desk.reports if kind == "said"] == ["exited", "bye"]
