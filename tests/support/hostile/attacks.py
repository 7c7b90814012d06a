"""Attacks that go on until they are ended, each in a process of its own.

    python -m tests.support.hostile.attacks KIND UID JSON

`attacking` starts one and waits until it is on. All run at a low priority: what is tested is what the daemon
does, not how the kernel shares out a few cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from bftrainer.wire.headers import NONCE_HEADER, PROTOCOL, PROTOCOL_HEADER, TAG_HEADER
from tests.support.hostile.agent import posing
from tests.support.site import ROOT

NICE = 10
NOBODY = 65_534
ON = "on"
CONNECT_S = 2.0
FEED = b"GET /v1/feed HTTP/1.1\r\nHost: bftrainer\r\n\r\n"
HALF = b"POST /v1/trainers HTTP/1.1\r\nHost: bftrainer\r\nContent-Length: 100000\r\nX-Slow: "


def on() -> None:
    """Say that the attack is on."""
    print(ON, flush=True)


@contextlib.contextmanager
def attacking(
    kind: str, *, by_stranger: bool = False, uid: int = NOBODY, **arguments: Any
) -> Iterator[subprocess.Popen[str]]:
    """Attack as the function `kind` of this module does, until the end of the block; where we are root, as
    the user `uid` if it is to be a stranger."""
    user = uid if by_stranger and os.geteuid() == 0 else os.geteuid()
    command = [sys.executable, "-m", __spec__.name, kind, str(user), json.dumps(arguments, default=str)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == ON, f"{kind} has not begun"
        yield process
    finally:
        process.kill()
        process.wait()


# on the store


def lock(database: str, seconds: float) -> None:
    """Keep the database locked for so long, as a backup does; then do nothing."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as c:
        c.execute("PRAGMA busy_timeout=10000")
        c.execute("BEGIN EXCLUSIVE")
        on()
        time.sleep(seconds)
        c.execute("ROLLBACK")
    time.sleep(1e6)


def bursts(database: str, locked_s: float, free_s: float) -> None:
    """Lock the database again and again, so that every write of others takes long, as on a slow disk."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as c:
        c.execute("PRAGMA busy_timeout=10000")
        on()
        while True:
            c.execute("BEGIN EXCLUSIVE")
            time.sleep(locked_s)
            c.execute("ROLLBACK")
            time.sleep(free_s)


# by users of the API


def specs(at: str, size: int, at_once: int) -> None:
    """Submit long specs that are wrong, so many at a time, again and again."""
    lines = (f"  key{n}: [1, 2, {{a: b}}, 'text {n}']" for n in itertools.count())
    text = "name: long\ncommand: [python, x.py]\nnodes: {max: 1}\nenv:\n"
    while len(text) < size:
        text += next(lines) + "\n"

    async def submit(http: aiohttp.ClientSession) -> None:
        body = {"spec": text, "name": "long.yaml", "base": "/"}
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.post("http://bftrainer/v1/trainers", json=body) as answer:
                    await answer.read()
            await asyncio.sleep(0.01)

    _with_session(at, lambda http: _together(*(submit(http) for _ in range(at_once))))


def asking(at: str, paths: list[str], per_s: float) -> None:
    """Ask each of these routes so often a second, whether or not answers come."""

    async def ask(http: aiohttp.ClientSession, path: str) -> None:
        waiting = set[asyncio.Task[None]]()
        while True:
            await asyncio.sleep(1 / per_s)
            if len(waiting) < 50:
                task = asyncio.create_task(get(http, path))
                waiting.add(task)
                task.add_done_callback(waiting.discard)

    async def get(http: aiohttp.ClientSession, path: str) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with http.get(f"http://bftrainer{path}") as answer:
                await answer.read()

    _with_session(at, lambda http: _together(*(ask(http, path) for path in paths)))


def every_door(at: str, studies: list[str], spec: str) -> None:
    """Use every door of the API at once, as fast as the daemon lets one user: submit these studies and this
    spec, look at all that came of it, order, and send bodies that are huge or have no end."""
    ways = ("", "?course=1000", "?trials=100&course=1000", "?trials=100000")
    numbers = range(1, 2 * len(studies) + 1)
    asked = [("GET", f"/v1/studies/{n}{way}", b"") for n in numbers for way in ways]
    asked += [("GET", f"/v1/{path}", b"") for path in ("studies?limit=1000", "trainers?limit=1000")]
    asked += [("GET", path, b"") for path in ("/v1/events?limit=10000", "/v1/pool", "/metrics", "/v1/status")]
    ordered = [("POST", f"/v1/studies/{n}/{word}", b"") for n in numbers for word in ("pause", "resume")]
    ordered += [("POST", f"/v1/studies/{n}/priority", b'{"priority": 0.5}') for n in numbers]
    ordered += [("POST", f"/v1/studies/{n}/cancel", b"") for n in numbers]
    body = {"name": "a.yaml", "base": "/"}
    submitted = [("POST", "/v1/studies", json.dumps({"spec": text, **body}).encode()) for text in studies]
    submitted += [("POST", "/v1/trainers", json.dumps({"spec": spec, **body}).encode())] * len(studies)
    huge = [("POST", "/v1/studies", b" " * 50_000_000), ("POST", "/v1/trainers", b"[" * 64_000)]

    async def send(http: aiohttp.ClientSession, requests: list[tuple[str, str, bytes]]) -> None:
        for method, path, sent in itertools.cycle(requests):
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.request(method, f"http://bftrainer{path}", data=sent) as answer:
                    await answer.read()
            await asyncio.sleep(0.01)

    def work(http: aiohttp.ClientSession) -> Awaitable[None]:
        several = [*[submitted] * 3, *[asked] * 6, ordered, huge]
        return _together(*(send(http, requests) for requests in several))

    _with_session(at, work)


def submitting(at: str, into: str, spec: str, study: str, every_s: float) -> None:
    """Submit this spec and this study again and again, as a user who means no harm, and cancel what was
    taken; append the seconds that each submission took."""
    file = Path(into).open("a", buffering=1)  # noqa: SIM115  until the end of the process

    async def submit(http: aiohttp.ClientSession) -> None:
        for number in itertools.count():
            kind, text = ("trainers", spec) if number % 2 else ("studies", study)
            body = {"spec": text.replace("NAME", f"fair{number}"), "name": "a.yaml", "base": "/"}
            began = time.monotonic()
            async with http.post(f"http://bftrainer/v1/{kind}", json=body) as answer:
                told = await answer.json()
            took = {"kind": kind, "status": answer.status, "took_s": time.monotonic() - began}
            file.write(json.dumps(took) + "\n")
            if answer.status == 201:
                way = ("DELETE", "") if kind == "trainers" else ("POST", "/cancel")
                async with http.request(way[0], f"http://bftrainer/v1/{kind}/{told['id']}{way[1]}") as answer:
                    await answer.read()
            await asyncio.sleep(every_s)

    _with_session(at, submit)


# by strangers


def connections(at: str, idle: int, half_open: int, again_s: float = 1.0) -> None:
    """Keep so many connections that say nothing, and so many that never end their headers; replace those that
    the daemon ends."""
    first = [b""] * idle + [HALF] * half_open
    found: list[socket.socket | None] = [None] * len(first)
    for turn in itertools.count():
        for number, said in enumerate(first):
            if found[number] is None or _ended(found[number]):
                found[number] = _connection(at, said)
            elif said:
                with contextlib.suppress(OSError):
                    found[number].send(b"x")
        if turn == 0:
            on()
        time.sleep(again_s)


def _connection(at: str, said: bytes) -> socket.socket | None:
    """A new connection that has said something; None if the daemon takes none."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(CONNECT_S)
    try:
        made.connect(at)
        made.sendall(said)
    except OSError:
        made.close()
        return None
    made.setblocking(False)
    return made


def _ended(connection: socket.socket | None) -> bool:
    """Whether the other side has closed a connection."""
    if connection is None:
        return True
    try:
        return connection.recv(1 << 16, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def feed_readers(at: str, readers: int, stuck: int) -> None:
    """Keep so many streams of the feed open, of which so many are never read; replace those that end."""
    found: list[socket.socket | None] = [None] * readers
    for turn in itertools.count():
        for number, stream in enumerate(found):
            if stream is None:
                found[number] = _connection(at, FEED)
                continue
            with contextlib.suppress(BlockingIOError):
                while number >= stuck and (data := stream.recv(1 << 20)) is not None:
                    if not data:
                        stream.close()
                        found[number] = None
                        break
        if turn == 0:
            on()
        time.sleep(0.1)


def hellos(at: str, size: int, at_once: int) -> None:
    """Connect as an agent without a secret, so many at a time, and introduce yourself at length."""
    filling = ",".join('{"a":1}' for _ in range(size // 8))
    nobody = {"type": "hello", "node": "n1", "tag": "t", "nonce": "0", "workers": []}
    said = "0" * 64 + json.dumps(nobody).replace("[]", f"[{filling}]")
    headers = {PROTOCOL_HEADER: PROTOCOL, TAG_HEADER: "t", NONCE_HEADER: "0"}

    async def introduce(http: aiohttp.ClientSession) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.ws_connect(
                    "http://bftrainer/v1/agent", headers=headers, max_msg_size=0
                ) as ws:
                    await ws.receive(timeout=10.0)
                    await ws.send_str(said)
                    await ws.receive(timeout=10.0)
            await asyncio.sleep(0.01)

    _with_session(at, lambda http: _together(*(introduce(http) for _ in range(at_once))))


def pings(at: str, at_once: int) -> None:
    """Connect as an agent without a secret, so many at a time, and send nothing but pings."""
    request = (
        "GET /v1/agent HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"{PROTOCOL_HEADER}: {PROTOCOL}\r\n{TAG_HEADER}: t\r\n{NONCE_HEADER}: 0\r\n\r\n"
    )
    many = b"\x89\x80mask" * 10_000

    async def ping() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_unix_connection(at)
                writer.write(request.encode())
                await reader.read(4096)
                with contextlib.closing(writer):
                    while not reader.at_eof():
                        writer.write(many)
                        await writer.drain()
            await asyncio.sleep(0.001)

    async def run() -> None:
        on()
        await _together(*(ping() for _ in range(at_once)))

    asyncio.run(run())


# by agents


def agent_flood(at: str, node: str, tag: str, secret: str, messages: list[Any]) -> None:
    """Say these messages as a node's agent, again and again, as fast as the daemon takes them."""

    async def flood() -> None:
        async with posing(Path(at), node, tag, secret) as agent:
            on()
            while True:
                for _ in range(100):
                    for message in messages:
                        agent.say(message)
                await agent.sent(1e6)
                await asyncio.sleep(0)

    asyncio.run(flood())


# what they share


def _with_session(at: str, work: Callable[[aiohttp.ClientSession], Awaitable[None]]) -> None:
    async def run() -> None:
        async with _session(at) as http:
            on()
            await work(http)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def _session(at: str) -> AsyncIterator[aiohttp.ClientSession]:
    """Connections to the daemon, without a limit of their own."""
    connector = aiohttp.UnixConnector(path=at, limit=0)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield http


async def _together(*work: Awaitable[None]) -> None:
    await asyncio.gather(*work)


KINDS = (
    lock,
    bursts,
    specs,
    asking,
    every_door,
    submitting,
    connections,
    feed_readers,
    hellos,
    pings,
    agent_flood,
)


if __name__ == "__main__":
    os.nice(NICE)
    if int(sys.argv[2]) != os.geteuid():
        os.setuid(int(sys.argv[2]))
    {kind.__name__: kind for kind in KINDS}[sys.argv[1]](**json.loads(sys.argv[3]))
