"""Large answers: bounded in memory and in time, whoever reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bftrainer.api.answers import PIECE, Answer, Answers
from bftrainer.api.errors import errors
from bftrainer.api.listing import dumps
from tests.support.waiting import until_true

MB = 1_000_000
LARGE = Answer(b"x" * (8 * MB), {"Bftrainer-Next": "7"})  # much more than sockets buffer


class Served:
    """A server whose answers go to the user that the query names."""

    def __init__(self, most: int, seconds: float) -> None:
        self.hit = list[tuple[str, str]]()
        self.answers = Answers(lambda bound, by: self.hit.append((bound, by)), most, seconds)

    async def large(self, request: web.Request) -> web.StreamResponse:
        return await self.answers.send(request, request.query["user"], LARGE)

    async def small(self, request: web.Request) -> web.StreamResponse:
        return await self.answers.send(request, request.query["user"], Answer(b"y" * PIECE))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[TestServer]:
        app = web.Application(middlewares=[errors])
        app.add_routes([web.get("/large", self.large), web.get("/small", self.small)])
        async with TestServer(app) as server:
            yield server


async def stalled(server: TestServer, user: str) -> asyncio.StreamWriter:
    """A client that asks and does not read."""
    _, writer = await asyncio.open_connection(server.host, server.port, limit=2)
    writer.write(f"GET /large?user={user} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await writer.drain()
    return writer


def test_an_answer_comes_whole() -> None:
    async def story() -> None:
        served = Served(64 * MB, 60.0)
        async with served.running() as server, aiohttp.ClientSession() as http:
            for path, body in (("/large", LARGE.body), ("/small", b"y" * PIECE)):
                async with http.get(server.make_url(path), params={"user": "ann"}) as answer:
                    assert await answer.read() == body
                    assert answer.content_type == "application/json"
            async with http.get(server.make_url("/large"), params={"user": "ann"}) as answer:
                assert answer.headers["Bftrainer-Next"] == "7"
        assert served.hit == [] and not served.answers._bytes

    asyncio.run(story())


def test_a_head_is_answered_without_a_body_also_where_that_is_large() -> None:
    async def story() -> None:
        served = Served(64 * MB, 60.0)
        async with served.running() as server:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            for end in ("keep-alive", "close"):
                asked = f"HEAD /large?user=ann HTTP/1.1\r\nHost: x\r\nConnection: {end}\r\n\r\n"
                writer.write(asked.encode())
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 ") and b"Content-Length: 8000000\r\n" in head
            assert await reader.read() == b"", "what came after the head would be taken for the next answer"
            writer.close()

    asyncio.run(story())


def test_clients_that_do_not_read_hold_a_bounded_amount() -> None:
    async def story() -> None:
        served = Served(64 * MB, 60.0)
        async with served.running() as server, aiohttp.ClientSession() as http:
            writers = [await stalled(server, "ann") for _ in range(2)]
            await until_true(lambda: served.answers._bytes["ann"] == 16 * MB)

            async def status(path: str, user: str) -> int:
                async with http.get(server.make_url(path), params={"user": user}) as answer:
                    await answer.read()
                    return answer.status

            assert await status("/large", "ann") == 429, "a quarter of all is under way for ann"
            assert (await status("/small", "ann"), await status("/large", "bob")) == (200, 200)
            assert served.hit == [("max_answers_waiting_mb", "ann")]
            served.answers._most = 96 * MB
            writers.append(await stalled(server, "ann"))
            await until_true(lambda: served.answers._bytes["ann"] == 24 * MB)
            writers.pop().close()
            await until_true(lambda: served.answers._bytes["ann"] == 16 * MB)
            served.answers._most = 64 * MB
            for user in ("bob", "bob", "eve", "eve", "joe", "joe"):
                writers.append(await stalled(server, user))
            await until_true(lambda: served.answers._bytes.total() == 64 * MB)
            assert await status("/large", "sue") == 200, "who has the most gives way"
            await until_true(lambda: served.answers._bytes.total() == 56 * MB)
            assert served.hit[-1] == ("max_answers_waiting_mb", "sue")
            for count, user in enumerate(("sue", "kim", "lou", "max"), start=5):
                writers.append(await stalled(server, user))
                await until_true(partial(_users, served, count))
            assert set(served.answers._bytes.values()) == {8 * MB}
            assert await status("/large", "may") == 503, "all have as much"
            for writer in writers:
                writer.close()
            await until_true(lambda: not served.answers._bytes)

    asyncio.run(story())


def _users(served: Served, count: int) -> bool:
    return len(served.answers._bytes) == count


@pytest.mark.parametrize("others", [0, 1])
def test_one_answer_is_always_possible(others: int) -> None:
    """However large it is: of all that may be under way, or of what one user may have."""

    async def story() -> None:
        served = Served(4 * MB if not others else 20 * MB, 60.0)
        async with served.running() as server, aiohttp.ClientSession() as http:
            writers = [await stalled(server, "ann") for _ in range(others)]
            await until_true(lambda: served.answers._bytes.total() == others * 8 * MB)
            async with http.get(server.make_url("/large"), params={"user": "bob"}) as answer:
                assert (answer.status, len(await answer.read())) == (200, 8 * MB)
            for writer in writers:
                writer.close()

    asyncio.run(story())


def test_a_client_that_does_not_take_its_answer_in_time_is_cut_off() -> None:
    async def story() -> None:
        served = Served(64 * MB, 0.05)
        async with served.running() as server:
            reader, writer = await asyncio.open_connection(server.host, server.port, limit=2)
            writer.write(b"GET /large?user=ann HTTP/1.1\r\nHost: x\r\n\r\n")
            await until_true(lambda: served.hit == [("answer_timeout_s", "ann")])
            assert not served.answers._bytes
            got = 0
            while piece := await reader.read(MB):
                got += len(piece)
            assert 0 < got < len(LARGE.body)
            writer.close()

    asyncio.run(story())


def test_what_cannot_be_json_keeps_no_answer_back() -> None:
    assert dumps({"time": b"\xff", "text": "\ud800"}) == '{"time": null, "text": "?"}'
