"""What agents, and those that pose as agents, may use of the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from bftrainer.wire import hub as hub_module
from bftrainer.wire import introduction, seal
from bftrainer.wire.headers import PROTOCOL_HEADER, TAG_HEADER
from bftrainer.wire.hub import BURST_S, CONNECTS_PER_S, HubLimits
from bftrainer.wire.introduction import Newcomers
from bftrainer.wire.outbox import Outbox, Size
from bftrainer.wire.rates import SLICE_S, Bucket, Turns
from tests.support.agents_desk import Desk, at

SMALL = HubLimits(message=1000, queue=1000, per_second=5.0)
AGREES_S = 10.0
"""How long aiohttp would wait for the other side to agree to an end."""
OPEN_MESSAGE = b"\x81\xff" + (10**9).to_bytes(8, "big") + b"mask"
"""The head of a frame that announces a text of a gigabyte."""


async def end_of(ws: aiohttp.ClientWebSocketResponse[bool]) -> Any:
    """What the daemon says when it ends a connection, after its challenge."""
    async with asyncio.timeout(10):
        while (frame := await ws.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
    return frame.data


def test_nothing_is_parsed_before_its_seal_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[object] = []
    monkeypatch.setattr(seal, "parse", parsed.append)
    desk = Desk()

    async def story() -> None:
        async with desk.socket() as ws:
            await ws.send_str("0" * seal.MAC_CHARACTERS + '{"type": "hello", "node": "n", "workers": []}')
            await end_of(ws)

    at(desk, story)
    assert parsed == [] and desk.reports == []


@pytest.mark.parametrize("known", [False, True])
def test_a_message_that_is_too_large_ends_the_connection_before_it_has_come(known: bool) -> None:
    desk = Desk(SMALL)

    async def story() -> None:
        async with desk.socket() as ws:
            if known:
                await desk.say_hello(ws)
                await desk.until("up")
            ws._response.connection.transport.write(OPEN_MESSAGE)  # type: ignore[union-attr]
            assert await end_of(ws) == aiohttp.WSCloseCode.MESSAGE_TOO_BIG

    at(desk, story)
    assert desk.bounds == (["max_message_kb"] if known else [])


def test_an_agent_of_another_version_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()

    async def story() -> None:
        for headers in ({PROTOCOL_HEADER: "1"}, {PROTOCOL_HEADER: "99"}, {TAG_HEADER: "two words"}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with desk.socket(**headers):
                    pass
            assert refused.value.status == (400 if TAG_HEADER in headers else 426)

    with caplog.at_level(logging.WARNING):
        at(desk, story)
    assert "agents speak protocol 2 with this daemon, and this one '99'" in caplog.text


def test_the_oldest_connection_that_has_proven_nothing_makes_room() -> None:
    now, cut = [0.0], []
    newcomers = Newcomers(lambda: now[0])

    def one(name: str) -> Any:
        return newcomers.one(lambda: cut.append(name), 2)

    with one("first"), one("second"):
        with one("third") as has_room:
            assert not has_room and cut == [], "all have just come"
        now[0] = introduction.QUICK_S
        with one("third") as has_room:
            assert has_room and cut == ["first"]
        with one("fourth") as has_room:
            assert has_room and cut == ["first"], "the third has left"


def test_who_says_nothing_does_not_keep_agents_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introduction, "QUICK_S", 0.0)
    desk = Desk(HubLimits(newcomers=2))

    async def story() -> None:
        async with desk.socket() as silent, desk.socket(), desk.agent():
            assert await end_of(silent) is None
            await desk.until("up")

    at(desk, story)


def test_an_agent_whose_inventory_makes_the_daemon_fail_leaves_no_ghost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    take_in = desk.up

    def fails(node: str, tag: str, inventory: list[Any]) -> bool:
        take_in(node, tag, inventory)
        raise RecursionError

    async def story() -> None:
        desk.up = fails  # type: ignore[method-assign]
        async with desk.agent() as (_, hear):
            assert await hear() is None, "the connection ends"
        assert not desk.hub.connected("n")
        desk.up = take_in  # type: ignore[method-assign]
        async with desk.agent("another"):
            await desk.until("up", "down", "up")

    at(desk, story)
    assert "connection failed" in caplog.text


def test_a_message_at_which_the_daemon_fails_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    take_in = desk.said

    def fails(node: str, message: Any) -> None:
        take_in(node, message)
        raise KeyError("base")

    async def story() -> None:
        desk.said = fails  # type: ignore[method-assign]
        async with desk.agent() as (send, _):
            await send({"type": "bye"})
            await send({"type": "bye"})
            await desk.until("up", "said", "said")

    at(desk, story)
    assert "is dropped" in caplog.text


def test_an_agent_that_does_not_read_is_cut_off_and_comes_again() -> None:
    desk = Desk(SMALL)

    async def story() -> None:
        async with desk.agent() as (_, hear):
            await desk.until("up")
            for _ in range(100):
                desk.hub.send("n", {"type": "kv", "value": "x" * 100})
            while await hear() is not None:
                pass
            await desk.until("up", "down")
        async with desk.agent():
            await desk.until("up", "down", "up")

    at(desk, story)
    assert desk.bounds == ["max_unsent_kb"], "told once"
    assert desk.hub._waiting.bytes == 0


def test_what_waits_for_one_agent_is_sent_a_few_messages_at_a_time() -> None:
    """Also where it takes them all at once: asyncio alone would send thousands in one turn of its loop."""
    sent: list[str] = []

    async def send_str(text: str) -> None:
        sent.append(text)

    async def story() -> None:
        outbox = Outbox(10**6, Size())
        for number in range(1000):
            outbox.put(str(number))
        sending = asyncio.create_task(hub_module._send_all(SimpleNamespace(send_str=send_str), outbox))  # type: ignore[arg-type]
        counts = []
        while len(sent) < 1000:
            before = len(sent)
            await asyncio.sleep(0)
            counts.append(len(sent) - before)
        sending.cancel()
        assert max(counts) == hub_module.SENT_AT_ONCE

    asyncio.run(story())
    assert sent == [str(number) for number in range(1000)]


def test_all_outboxes_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "TOGETHER", 1)
    desk = Desk(HubLimits(queue=1000))

    async def story() -> None:
        async with desk.agent(node="n"), desk.agent(node="m"):
            await desk.until("up", "up")
            desk.hub.send("n", {"value": "x" * 700})
            desk.hub.send("m", {"value": "x" * 500})
            await desk.until("up", "up", "down")
            assert (desk.hub.connected("n"), desk.hub.connected("m")) == (False, True), "the fullest goes"

    at(desk, story)


def test_an_agent_is_read_no_faster_than_it_may_speak_and_cut_off_if_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_module, "FLOOD_S", 0.3)
    desk = Desk(SMALL)

    async def story() -> None:
        async with desk.agent() as (send, hear):
            for _ in range(1000):
                await send({"type": "bye"})
            assert await hear() is None
            async with asyncio.timeout(10):
                while desk.hub.connected("n"):
                    await asyncio.sleep(0.01)

    at(desk, story)
    heard = [kind for kind, _ in desk.reports].count("said")
    burst = SMALL.per_second * BURST_S
    assert burst <= heard <= burst + 10, "then one at a time"
    assert desk.bounds == ["max_messages_per_second"] and ("flooded", "n") in desk.reports


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", ["ping", "pong"])
def test_frames_that_are_no_messages_are_counted_too(
    monkeypatch: pytest.MonkeyPatch, kind: str, known: bool
) -> None:
    """They cost the loop as much. One that has not proven to be an agent may send none at all."""
    monkeypatch.setattr(hub_module, "FLOOD_S", 0.3)
    desk = Desk(SMALL)

    async def story() -> None:
        async with desk.socket() as ws:
            if known:
                await desk.say_hello(ws)
                await desk.until("up")
            with contextlib.suppress(ConnectionError):  # it may be cut off before the last
                for _ in range(1000):
                    await getattr(ws, kind)()
            await end_of(ws)

    at(desk, story)
    assert (("flooded", "n") in desk.reports) is known
    assert desk.bounds == (["max_messages_per_second"] if known else [])


@pytest.mark.parametrize("forged", [False, True])
def test_one_that_goes_on_sending_after_its_end_is_not_read(forged: bool) -> None:
    desk = Desk()

    async def story() -> None:
        async with desk.socket() as ws:
            if forged:
                await ws.send_str("0" * seal.MAC_CHARACTERS + "{}")
            with pytest.raises(ConnectionError):
                async with asyncio.timeout(AGREES_S / 2):
                    while True:
                        await ws.ping()
                        await asyncio.sleep(0)

    at(desk, story)
    assert desk.reports == []


def test_an_agent_that_pings_is_answered() -> None:
    desk = Desk()

    async def story() -> None:
        async with desk.socket() as ws:
            await desk.say_hello(ws)
            ws._autoping = False
            await ws.ping(b"there?")
            frame = await ws.receive(timeout=10)
            assert (frame.type, frame.data) == (aiohttp.WSMsgType.PONG, b"there?")

    at(desk, story)


def test_an_agent_that_connects_again_and_again_is_asked_to_come_later() -> None:
    desk = Desk()

    async def story() -> None:
        for _ in range(round(CONNECTS_PER_S * BURST_S) + 1):
            async with desk.agent():
                pass
        async with desk.socket() as ws:
            assert await desk.say_hello(ws) == "later"
        async with desk.agent("another", node="m"):
            pass

    at(desk, story)


def test_a_bucket_fills_at_its_rate_and_says_how_long_it_has_been_short() -> None:
    now = [0.0]
    bucket = Bucket(2.0, 10.0, lambda: now[0])
    assert [bucket.take(5.0), bucket.take(5.0)] == [0.0, 0.0] and not bucket.is_short
    assert bucket.take() == 0.5 and bucket.is_short
    now[0] = 1.0
    assert bucket.take() == 0.0 and bucket.short_s() == 1.0, "it has not rested"
    now[0] = 4.0
    assert not bucket.is_short and not bucket.full
    now[0] = 100.0
    assert bucket.full and bucket.short_s() == 0.0


def test_turns_are_given_in_order_and_leave_the_loop_half_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order, rests, clock = [], [], [0.0]
    really_sleep: Callable[[float], Any] = asyncio.sleep

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        await really_sleep(0)

    async def story() -> None:
        turns = Turns()

        async def work(name: str) -> None:
            for _ in range(3):
                async with turns.turn():
                    order.append(name)
                    clock[0] += 2 * SLICE_S
                await really_sleep(0)

        await asyncio.gather(work("a"), work("b"))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr("bftrainer.wire.rates.time.perf_counter", lambda: clock[0])
    asyncio.run(story())
    assert order == ["a", "b"] * 3
    assert rests == pytest.approx([2 * SLICE_S] * 5)


def test_a_message_for_many_agents_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, written = Desk(), []
    dumps = hub_module.json.dumps
    order, other = {"type": "kv", "value": "x"}, {"type": "kv", "value": "y"}

    async def story() -> None:
        async with desk.agent(node="n") as (_, one), desk.agent(node="m") as (_, two):
            await desk.until("up", "up")
            for message in (order, other, order):
                for node in ("n", "m"):
                    desk.hub.send(node, message)
            for hear in (one, two):
                assert [await hear() for _ in range(3)] == [order, other, order]

    def write(message: Any) -> str:
        written.append(message)
        return str(dumps(message))

    monkeypatch.setattr(hub_module, "json", type("Json", (), {"dumps": staticmethod(write)}))
    at(desk, story)
    assert written == [order, other, order]
