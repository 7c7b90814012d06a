"""Clients that connect and do not go on, send without end, or are too many: seen from real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bftrainer.api.errors import errors
from bftrainer.api.transport.admission import HttpLimits
from bftrainer.api.transport.connection import MAX_HEAD, connection_of, whole
from tests.support.serving import PLENTY, Places, serving
from tests.support.waiting import until_true

QUICK = replace(PLENTY, timeout_s=0.3)
GET = b"GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n"
POST = GET.replace(b"GET", b"POST")
GIVE_UP_S = 20.0


class Rooms:
    """An application whose handlers wait at will; who is in which room."""

    def __init__(self) -> None:
        self.at_work = 0
        self.open_doors = asyncio.Event()
        self.app = web.Application(middlewares=[errors, whole], client_max_size=1000)
        self.app.add_routes(
            [
                web.route("*", "/v1/echo", self.echo),
                web.route("*", "/v1/wait", self.wait),
                web.get("/v1/large", self.large),
                web.get("/v1/fails", self.fails),
            ]
        )
        self.agents = web.Application(middlewares=[errors])
        self.agents.add_routes([web.get("/v1/agent", self.agent)])

    async def echo(self, request: web.Request) -> web.Response:
        return web.json_response({"method": request.method, "body": (await request.read()).decode()})

    async def wait(self, request: web.Request) -> web.Response:
        self.at_work += 1
        try:
            await self.open_doors.wait()
        finally:
            self.at_work -= 1
        return web.json_response({})

    async def large(self, request: web.Request) -> web.Response:
        return web.json_response("x" * 10_000_000)

    async def fails(self, request: web.Request) -> web.Response:
        raise ZeroDivisionError("a bug")

    async def agent(self, request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        if connection := connection_of(request):
            connection.proven()
        async for frame in ws:
            await ws.send_str(frame.data)
        return ws


def story(
    tmp_path: Path,
    bounds: HttpLimits,
    tell: Callable[[Rooms, Places, Path], Awaitable[None]],
    *,
    to_agents: bool = False,
) -> Places:
    """Tell a story with an application that is served; what its places have seen."""

    async def run() -> Places:
        rooms, places, at = Rooms(), Places(bounds), tmp_path / "s"
        app = rooms.agents if to_agents else rooms.app
        async with asyncio.timeout(GIVE_UP_S), serving(app, at, places):
            await tell(rooms, places, at)
            rooms.open_doors.set()
        return places

    return asyncio.run(run())


async def said_to(at: Path, text: bytes) -> tuple[int, dict[str, str], Any]:
    """What the server answers to some bytes until it closes the connection: status, headers, JSON."""
    reader, writer = await asyncio.open_unix_connection(at)
    try:
        writer.write(text)
        answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(first.split()[1]), headers, json.loads(body) if body else None


def connected(at: Path, text: bytes = b"") -> socket.socket:
    """A connection over which some bytes were sent."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(str(at))
    client.sendall(text)
    return client


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"GET",
        GET[:-1],
        b"\r\n" * 3,
        b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
        b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab",
        b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
        b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\nab",
        b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n",
        b"GET /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
        b"GET /v1/large HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_a_client_that_does_not_go_on_is_cut_off(tmp_path: Path, text: bytes) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        with closing(connected(at, text)):
            await until_true(lambda: places.taken == 1)
            await until_true(lambda: places.taken == 0)

    story(tmp_path, QUICK, tell)


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (b"", GET[:-1]),
        (b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n", b"x" * 200),
        (b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n", b"x" * 200),
        (b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"x" * 200),
    ],
)
def test_bytes_that_trickle_in_do_not_gain_time(tmp_path: Path, before: bytes, then: bytes) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        with closing(connected(at, before)) as client:
            for byte in then:
                try:
                    client.send(bytes([byte]))
                except BrokenPipeError:
                    break
                await asyncio.sleep(0.05)
            assert places.taken == 0
            answer = client.recv(1000)
            assert b" 408 " in answer and b"; send it again" in answer

    story(tmp_path, QUICK, tell)


def test_a_body_that_is_too_large_is_refused_before_it_is_asked_for(tmp_path: Path) -> None:
    head = b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\nExpect: 100-continue\r\n\r\n"

    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        status, _, said = await said_to(at, head)
        assert status == 413 and "has 5000 bytes, of at most 1000" in said["error"]

    story(tmp_path, PLENTY, tell)


def test_work_is_not_the_clients_time(tmp_path: Path) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        asked = asyncio.create_task(said_to(at, GET.replace(b"echo", b"wait")))
        await until_true(lambda: rooms.at_work == 1)
        await asyncio.sleep(3 * QUICK.timeout_s)
        rooms.open_doors.set()
        assert (await asked)[0] == 200

    story(tmp_path, QUICK, tell)


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (b"GET /v1/echo HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD, 431, "at most 16384 bytes"),
        (b"\r\n" * 10 + b"X" * 2 * MAX_HEAD, 431, "at most 16384 bytes"),
        (b"GET /v1/echo HTTP/1.1\r\n" + b"X: y\r\n" * MAX_HEAD, 431, "at most 16384 bytes"),
        (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n", 400, "no request that can be read"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, "no request that can be read"),
        (b"GET /v1/echo HTTP/9.9\r\n\r\n", 400, "no request that can be read"),
        (b"GET /v1/echo\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", 400, "no request that"),
        (b"GET /v1/fails HTTP/1.1\r\nHost: x\r\n\r\n", 500, "its log says how"),
        (
            b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000,
            413,
            "its body has 2000 bytes, of at most 1000; send less",
        ),
        (b"POST /v1/echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "no request that can be read"),
        (
            b"POST /v1/echo HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            "no request that can be read",
        ),
        (b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "be read"),
        (b"GET /v1/wait HTTP/1.1\r\nHost: x\r\nExpect: a miracle\r\n\r\n", 417, "nothing else"),
        (b"GET /v1/wait HTTP/1.1\r\nHost: x\r\nExpect: \xff\r\n\r\n", 417, "nothing else"),
    ],
)
def test_what_is_no_request_is_answered_in_json_and_the_connection_ends(
    tmp_path: Path, text: bytes, status: int, words: str
) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        found, _, said = await said_to(at, text)
        assert (found, words in said["error"]) == (status, True)
        await until_true(lambda: places.taken == 0)

    story(tmp_path, PLENTY, tell)


def test_a_head_that_comes_in_pieces_is_bounded_too(tmp_path: Path) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        with closing(connected(at, GET[:-2])) as client:
            client.setblocking(False)
            for n in range(MAX_HEAD // 1000 + 1):
                await asyncio.get_running_loop().sock_sendall(client, b"X%d: %s\r\n" % (n, b"x" * 1000))
                await asyncio.sleep(0.01)
            assert b" 431 " in await asyncio.get_running_loop().sock_recv(client, 1000)
            await until_true(lambda: places.taken == 0)

    story(tmp_path, PLENTY, tell)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (GET * 50, 200),
        (GET.replace(b"x", b"x\r\nConnection: keep-alive"), 200),
        (GET.replace(b"1.1", b"1.0"), 200),
        (GET.replace(b"GET", b"OPTIONS"), 200),
        (GET.replace(b"x", b"x\r\nUpgrade: websocket\r\nConnection: upgrade"), 200),
        (GET.replace(b"GET /v1/echo", b"CONNECT example.org:443"), 404),
        (GET.replace(b"/v1/echo", b"http://example.org/v1/echo"), 200),
        (
            GET.replace(b"GET", b"POST").replace(b"x", b"x\r\nContent-Encoding: deflate\r\nContent-Length: 3")
            + b"abc",
            200,
        ),
        (
            GET.replace(b"GET", b"POST").replace(b"x", b"x\r\nTransfer-Encoding: chunked")
            + b"3\r\nabc\r\n0\r\n\r\n",
            200,
        ),
    ],
)
def test_every_connection_serves_one_request(tmp_path: Path, text: bytes, status: int) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        found, _, said = await said_to(at, text)
        assert found == status
        assert said.get("body", "") in ("", "abc")
        await until_true(lambda: places.taken == 0)

    story(tmp_path, PLENTY, tell)


def test_a_head_request_has_no_body(tmp_path: Path) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        assert (await said_to(at, GET.replace(b"GET", b"HEAD")))[::2] == (200, None)

    story(tmp_path, PLENTY, tell)


def test_many_idle_connections_of_a_user_leave_that_user_its_next_request(tmp_path: Path) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        idle = [connected(at, b"GET" if n % 2 else b"") for n in range(100)]
        for _ in range(5):
            assert (await said_to(at, GET))[0] == 200
        assert places.taken <= 10
        for client in idle:
            client.close()

    places = story(tmp_path, replace(PLENTY, each=10), tell)
    assert {bound for bound, _ in places.hits} == {"max_connections_per_user"}


def test_an_idle_connection_that_makes_room_is_told_why(tmp_path: Path) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        with closing(connected(at, b"GET")) as idle:
            await until_true(lambda: places.taken == 1)
            assert (await said_to(at, GET))[0] == 200
            answer = idle.recv(1000)
            assert b" 429 " in answer and b"1 connections of yours are open" in answer

    story(tmp_path, replace(PLENTY, each=1), tell)


def test_what_a_client_only_asks_for_ends_when_it_has_left(tmp_path: Path) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        client = connected(at, GET.replace(b"echo", b"wait"))
        await until_true(lambda: rooms.at_work == 1)
        client.close()
        await until_true(lambda: rooms.at_work == 0)
        await until_true(lambda: places.taken == 0)
        assert (await said_to(at, GET))[0] == 200

    story(tmp_path, PLENTY, tell)


def test_orders_in_work_are_counted_even_if_their_clients_go_away(tmp_path: Path) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        for n in range(1, 4):
            client = connected(at, POST.replace(b"echo", b"wait"))
            await until_true(lambda n=n: rooms.at_work == n)  # type: ignore[misc]
            client.close()
        status, headers, said = await said_to(at, GET)
        assert (status, headers["retry-after"]) == (429, "1") and "of yours" in said["error"]
        rooms.open_doors.set()
        await until_true(lambda: places.taken == 0)
        assert (await said_to(at, GET))[0] == 200

    story(tmp_path, replace(PLENTY, each=3), tell)


def test_who_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        found = [await said_to(at, GET) for _ in range(10)]
        assert [status for status, _, _ in found[:4]] == [200] * 4
        status, headers, said = found[-1]
        assert (status, headers["retry-after"]) == (429, "1") and "max_requests_per_second" in said["error"]

    story(tmp_path, replace(PLENTY, per_second=1.0), tell)


def test_agents_that_have_proven_to_be_some_stay(tmp_path: Path) -> None:
    upgrade = (
        b"GET /v1/agent HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )

    async def tell(rooms: Rooms, places: Places, at: Path) -> None:
        agent = connected(at, upgrade)
        agent.setblocking(False)
        loop = asyncio.get_running_loop()
        assert b" 101 " in await loop.sock_recv(agent, 1000)
        idle = [connected(at) for _ in range(20)]
        await asyncio.sleep(3 * QUICK.timeout_s)
        await until_true(lambda: places.taken == 1)
        await loop.sock_sendall(agent, b"\x81\x82\0\0\0\0hi")
        assert await loop.sock_recv(agent, 1000) == b"\x81\x02hi"
        for client in (agent, *idle):
            client.close()
        await until_true(lambda: places.taken == 0)

    story(tmp_path, replace(QUICK, total=5, each=5), tell, to_agents=True)
