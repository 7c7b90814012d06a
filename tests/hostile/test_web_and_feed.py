"""Attacks on the feed and on `bftrainer web`: others' data, half-open streams, readers that never read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from bftrainer.api.follow import EventParser
from tests.support.browser import web
from tests.support.hostile.attacks import attacking
from tests.support.hostile.daemon import EVERYONE
from tests.support.hostile.world import GOOD, World

HALF_OPEN = 1000
STRANGER = 2
"""The uid of a user who means no good."""


def test_readers_that_never_read_and_half_open_ones_harm_nothing(world: World) -> None:
    with (
        world.watched() as watch,
        attacking("feed_readers", by_stranger=False, at=world.socket, readers=16, stuck=12),
        attacking("feed_readers", by_stranger=True, at=world.socket, readers=100, stuck=50),
        attacking("connections", by_stranger=True, at=world.socket, idle=0, half_open=HALF_OPEN, again_s=0.2),
    ):
        watch.until_jobs(4)
    watch.assert_unharmed()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_a_user_is_told_nothing_of_others_by_the_feed() -> None:
    world = World()
    try:
        (world.root / EVERYONE).touch()
        world.start()
        world.good()
        told = as_user(STRANGER, world.socket)
        assert GOOD not in json.dumps(told) and "root" not in json.dumps(told["nodes"])
        assert told["trainers"] == [] and told["status"]["trainers"] == {}
        roles = [n["role"] for n in told["nodes"]]
        assert "member" in roles, "that nodes are in use is no secret"
        own = as_user(0, world.socket)
        assert [t["name"] for t in own["trainers"]] == [GOOD]
    finally:
        world.close()


def as_user(uid: int, at: Path) -> dict[str, object]:
    """Return the first event that a user is told."""
    pipe = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX) as made:
                made.settimeout(30.0)
                made.connect(str(at))
                made.sendall(b"GET /v1/feed HTTP/1.1\r\nHost: x\r\n\r\n")
                data = b""
                while not data.rstrip(b"\r\n").endswith(b"}"):
                    data += made.recv(1 << 16)
            os.write(pipe[1], data)
        os._exit(0)
    os.close(pipe[1])
    os.waitpid(child, 0)
    with os.fdopen(pipe[0], "rb") as file:
        body = file.read()
    text = re.sub(rb"\r\n[0-9a-f]+\r\n", b"", body.partition(b"\r\n\r\n")[2])
    ((_, told),) = EventParser().take(text[text.index(b"event: ") :] + b"\n\n")
    return dict(told)


async def entered(url: str) -> str:
    """Return the session for a link."""
    there = urlsplit(url)
    token = there.fragment.removeprefix("token=")
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"http://{there.netloc}/session", json={"token": token}) as answer,
    ):
        return str((await answer.json())["session"])


def test_streams_that_stay_half_open_keep_nobody_from_the_page(world: World) -> None:
    """Another user of the machine can connect, and gets nothing; whoever has the link is served."""
    with web(world.state) as url, contextlib.ExitStack() as stack:
        there = urlsplit(url)
        for number in range(HALF_OPEN):
            made = stack.enter_context(socket.socket())
            made.settimeout(5.0)
            with contextlib.suppress(OSError):
                made.connect((there.hostname or "", there.port or 0))
                made.sendall(b"GET /v1/feed HTTP/1.1\r\nHost: " if number % 2 else b"")
        asyncio.run(asyncio.wait_for(served(url), 60))
    assert world.running()


async def served(url: str) -> None:
    """See that the page is served, to whom it is for alone."""
    at, session = f"http://{urlsplit(url).netloc}", await entered(url)
    async with aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {session}"}
        async with http.get(f"{at}/v1/feed?parts=trainers", headers=headers) as answer:
            assert GOOD.encode() in await answer.content.readuntil(b"\n\n")
            async with http.get(f"{at}/v1/feed") as refused:
                assert refused.status == 401
            async with http.get(f"{at}/v1/status", headers={**headers, "Host": "evil.org"}) as refused:
                assert refused.status == 421
