"""Agent and daemon prove to each other that they know the pilot's secret, over a real connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bftrainer.agent.agent import Agent
from bftrainer.api.transport.listen import bind
from bftrainer.errors import BftrainerError
from bftrainer.wire import seal
from bftrainer.wire.headers import NONCE_HEADER, PROTOCOL, PROTOCOL_HEADER, TAG_HEADER
from bftrainer.wire.hub import Hub
from tests.support.waiting import until_true


async def listen(
    serve: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> tuple[web.AppRunner, str]:
    """Have agents' connections to a free port served; where that is."""
    app = web.Application()
    app.router.add_get("/v1/agent", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    bound = bind("127.0.0.1:0")
    await web.SockSite(runner, bound).start()
    return runner, f"127.0.0.1:{bound.getsockname()[1]}"


class Desk:
    """A hub on a port, and what it has heard."""

    def __init__(self, key: bytes = b"key") -> None:
        self.came: list[tuple[str, str]] = []
        self.gone: list[str] = []
        self.hub = Hub(lambda tag: seal.of_pilot(key, tag))
        self.hub.listen(self)
        self.address = ""
        self.opened = True

    def is_open(self) -> bool:
        return self.opened

    def up(self, node: str, tag: str, inventory: list[dict[str, Any]]) -> bool:
        self.came.append((node, tag))
        return True

    def down(self, node: str) -> None:
        self.gone.append(node)

    def said(self, node: str, message: dict[str, Any]) -> None:
        pass

    def at_bound(self, bound: str, node: str, at: float) -> None:
        raise AssertionError(bound)

    def flooded(self, node: str, reason: str) -> None:
        raise AssertionError(reason)

    async def open(self) -> web.AppRunner:
        runner, self.address = await listen(self.hub.serve)
        return runner


def at(desk: Desk, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        runner = await desk.open()
        try:
            async with asyncio.timeout(20):
                await scenario()
        finally:
            await runner.cleanup()

    asyncio.run(whole())


def agent(desk: Desk, known: str, orphan_s: float = 60.0) -> Agent:
    return Agent(node="n1", tag="abc", secret=known, daemon=desk.address, orphan_s=orphan_s)


KNOWN = seal.of_pilot(b"key", "abc")
AS_AGENT = {PROTOCOL_HEADER: PROTOCOL, TAG_HEADER: "abc", NONCE_HEADER: "mine"}


def test_an_agent_that_knows_its_secret_is_let_in_and_obeys() -> None:
    desk = Desk()

    async def scenario() -> None:
        serving = asyncio.create_task(agent(desk, KNOWN).serve())
        await until_true(lambda: desk.hub.connected("n1"))
        assert desk.came == [("n1", "abc")]
        desk.hub.send("n1", {"type": "exit"})
        await serving

    at(desk, scenario)


def test_an_agent_outlasts_a_daemon_that_does_not_know_yet_whom_to_let_in() -> None:
    desk = Desk()
    desk.opened = False

    async def scenario() -> None:
        waiting = agent(desk, KNOWN, orphan_s=0.5)
        serving = asyncio.create_task(waiting.serve())
        began = asyncio.get_running_loop().time()
        while waiting._connection.heard_at < began + 1.0:  # heard from it after it would have given up
            assert not serving.done()
            await asyncio.sleep(0.01)
        assert desk.came == []
        desk.opened = True
        await until_true(lambda: desk.hub.connected("n1"))
        desk.hub.send("n1", {"type": "exit"})
        await serving

    at(desk, scenario)


@pytest.mark.parametrize("known", ["", "guessed", seal.of_pilot(b"key", "other")])
def test_an_agent_that_does_not_know_it_never_gets_in(known: str, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()

    async def scenario() -> None:
        await agent(desk, known, orphan_s=0.5).serve()  # gives up, as without a daemon

    with caplog.at_level(logging.WARNING):
        at(desk, scenario)
    assert desk.came == [] and "does not know its pilot's secret" in caplog.text
    assert KNOWN not in caplog.text


def test_an_agent_takes_no_orders_from_who_does_not_know_its_secret() -> None:
    impostor = Desk(key=b"another")
    impostor.hub._secret_of = lambda tag: "wrong"
    took: list[str] = []

    async def scenario() -> None:
        honest = agent(impostor, "wrong", orphan_s=0.5)
        honest._connection._secret = KNOWN
        original = honest.obey
        honest.obey = lambda order: (took.append(order["type"]), original(order))[1]  # type: ignore[method-assign]
        await honest.serve()

    at(impostor, scenario)
    assert took == []


def test_what_is_changed_repeated_left_out_moved_or_of_another_connection_is_refused() -> None:
    one, two = seal.nonce(), seal.nonce()
    messages = [{"type": "start", "n": n, "text": "ü"} for n in range(3)]

    def sent() -> list[bytes]:
        agent_, _ = seal.seals(KNOWN, one, two)
        return [agent_.put(message).encode() for message in messages]

    theirs, _ = seal.seals(KNOWN, one, two)
    assert [theirs.take(text) for text in sent()] == messages
    first, second, third = sent()
    for texts in (
        [first.replace(b"start", b"stopp")],
        [first[: seal.MAC_CHARACTERS] + second[seal.MAC_CHARACTERS :]],
        [first, first],
        [second],
        [first, third, second],
        [first.removeprefix(first[:1])],
        [b"", first],
    ):
        theirs, _ = seal.seals(KNOWN, one, two)
        with pytest.raises(seal.ForgedError):
            for text in texts:
                theirs.take(text)
    ours = seal.seals(KNOWN, one, two)[1]
    for other in (ours, seal.seals(KNOWN, one, one)[0], seal.seals("guessed", one, two)[0]):
        with pytest.raises(seal.ForgedError):
            other.take(first)


class Between:
    """Somebody on the way between agent and daemon, who may put other frames in place of each.

    `change(from_daemon, number, frame)` says which.
    """

    def __init__(self, desk: Desk, change: Callable[[bool, int, str], list[str]]) -> None:
        self._desk, self._change = desk, change

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[tuple[Agent, asyncio.Task[None]]]:
        """An agent that goes this way, and how it serves."""
        runner, address = await listen(self._pass_on)
        agent = Agent(node="n1", tag="abc", secret=KNOWN, daemon=address, orphan_s=60.0)
        serving = asyncio.create_task(agent.serve())
        try:
            yield agent, serving
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        here = web.WebSocketResponse()
        await here.prepare(request)
        headers = {k: request.headers[k] for k in (PROTOCOL_HEADER, TAG_HEADER, NONCE_HEADER)}
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://{self._desk.address}/v1/agent", headers=headers) as there,
        ):
            ways = {self._carry(there, here, True), self._carry(here, there, False)}
            tasks = {asyncio.create_task(way) for way in ways}
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        return here

    async def _carry(self, source: Any, target: Any, from_daemon: bool) -> None:
        number = 0
        async for frame in source:
            for text in self._change(from_daemon, number, frame.data):
                await target.send_str(text)
            number += 1


HELLO, FIRST_REPORT, FIRST_ORDER = (False, 0), (False, 1), (True, 2)


@pytest.mark.parametrize("way", ["forged", "twice"])
def test_an_order_that_somebody_puts_in_on_the_way_is_never_obeyed(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk, took = Desk(), []

    def change(from_daemon: bool, number: int, frame: str) -> list[str]:
        if (from_daemon, number) != FIRST_ORDER:
            return [frame]
        return [frame.replace("kill", "exit")] if way == "forged" else [frame, frame]

    async def scenario() -> None:
        async with Between(desk, change).agent() as (honest, serving):
            obey = honest.obey
            honest.obey = lambda order: (took.append(order["type"]), obey(order))[1]  # type: ignore[method-assign]
            await until_true(lambda: desk.hub.connected("n1"))
            desk.hub.send("n1", {"type": "kill", "trainer": 7})
            await until_true(lambda: len(desk.came) >= 2 or serving.done())  # it has come again
            assert not serving.done()
            await until_true(lambda: desk.hub.connected("n1"))

    with caplog.at_level(logging.WARNING):
        at(desk, scenario)
    assert took == ([] if way == "forged" else ["kill"])
    assert "has not been sent by the other side; connecting again" in caplog.text


@pytest.mark.parametrize("which", [HELLO, FIRST_REPORT])
def test_what_somebody_changes_in_an_agents_words_on_the_way_is_never_heard(
    which: tuple[bool, int], caplog: pytest.LogCaptureFixture
) -> None:
    desk, heard = Desk(), []
    desk.hub._said = lambda node, message: heard.append(message)

    def change(from_daemon: bool, number: int, frame: str) -> list[str]:
        if (from_daemon, number) != which:
            return [frame]
        changed = frame.replace('"workers": []', '"workers": [{}]').replace('"bye"', '"hey"')
        assert changed != frame
        return [changed]

    async def scenario() -> None:
        async with Between(desk, change).agent() as (honest, _):
            if which == FIRST_REPORT:
                await until_true(lambda: desk.hub.connected("n1"))
                honest._connection.tell({"type": "bye"})
            await until_true(lambda: caplog.messages)

    with caplog.at_level(logging.WARNING):
        at(desk, scenario)
    assert heard == []
    assert bool(desk.came) == (which == FIRST_REPORT)


@pytest.mark.parametrize("first", ["nonsense", '{"node": 1}', "[]"])
def test_whoever_does_not_speak_like_an_agent_is_shown_out(first: str) -> None:
    desk = Desk()

    async def scenario() -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://{desk.address}/v1/agent", headers=AS_AGENT) as ws,
        ):
            assert (await ws.receive_json())["type"] == "challenge"
            await ws.send_str(first)
            assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSED

    at(desk, scenario)
    assert desk.came == []


def test_an_agent_killed_while_it_connects_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(ws: web.WebSocketResponse, request: web.Request) -> None:
        raise ConnectionResetError

    desk = Desk()
    monkeypatch.setattr(web.WebSocketResponse, "prepare", broken)

    async def scenario() -> None:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(f"http://{desk.address}/v1/agent", headers=AS_AGENT)

    at(desk, scenario)
    assert not caplog.records


def test_the_key_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = seal.load_key(path)
    assert seal.load_key(path) == key and len(key) == seal.KEY_BYTES
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(key[:5])  # the disk was full
    assert len(seal.load_key(path)) == seal.KEY_BYTES


@pytest.mark.parametrize("kind", ["folder", "nowhere", "circle", "device"])
def test_a_key_that_is_no_file_ends_in_one_message(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "key"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"nowhere": tmp_path / "no" / "x", "circle": path, "device": Path("/dev/zero")}[kind])
    with pytest.raises(BftrainerError, match=f"{path}: .*; it is the daemon's key. Remove"):
        seal.load_key(path)
    assert not (tmp_path / "no").exists()
