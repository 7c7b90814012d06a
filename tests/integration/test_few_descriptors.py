"""A process without file descriptors: connections wait, and nothing runs in circles meanwhile."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from bftrainer.errors import SchedulerError
from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.local.scheduler import SETTLED_S, LocalScheduler, Playback
from bftrainer.schedulers.shared import command
from tests.support.serving import PLENTY, Places, serving
from tests.support.waiting import until, until_true

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def no_descriptors() -> Iterator[None]:
    """All descriptors of this process are taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def connected(client: socket.socket, at: Path) -> None:
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, str(at))


def test_connections_wait_until_there_is_a_descriptor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def run() -> None:
        app, places, at = web.Application(), Places(PLENTY), tmp_path / "s"
        app.add_routes([web.get("/", hello)])
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as client, socket.socket(socket.AF_UNIX) as idle:
            async with asyncio.timeout(20), serving(app, at, places):
                await connected(idle, at)
                await until_true(lambda: places.taken == 1)
                more = [socket.socket(socket.AF_UNIX) for _ in range(40)]
                with no_descriptors():
                    for other in more:
                        await connected(other, at)
                    await connected(client, at)
                    await loop.sock_sendall(client, GET)
                    turns, began = 0, time.monotonic()
                    await until_true(lambda: bool(places.failures))
                    while time.monotonic() - began < 1.0:
                        turns += 1
                        await asyncio.sleep(0.05)
                    assert len(places.failures) <= 15, "it pauses after each"
                    assert turns > 10, "other things go on"
                for other in more:
                    other.close()
                await until_true(lambda: places.taken == 0)
                assert b"200 OK" in await loop.sock_recv(client, 1000)

    asyncio.run(run())
    assert places_said(caplog) == []


def places_said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the event loop itself has logged of it."""
    return [record.getMessage() for record in caplog.records if "accept" in record.getMessage()]


@pytest.fixture
def local(tmp_path: Path) -> LocalScheduler:
    """Node n1 is idle at first; it is taken 0.5 s after."""
    now, one = time.time(), frozenset({"n1"})
    return LocalScheduler(
        nodes=one,
        changes=[
            NodesChanged(time=0.0, joined=one),
            NodesChanged(time=0.5, left=one),
            NodesChanged(time=9e9),
        ],
        playback=Playback(begin=0.0, origin=now, speed=1.0),
        agents_at=str(tmp_path / "agents.sock"),
        log_dir=tmp_path / "logs",
        orphan_s=1e6,
        clock=_Wall(),
    )


class _Wall:
    def now(self) -> float:
        return time.time()


def test_a_command_that_cannot_be_run_is_a_failure_of_the_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        words = ("true",)
        with no_descriptors(), pytest.raises(SchedulerError, match="cannot run true: Too many open files"):
            await command.run(words, {}, 5.0, explain=lambda _, why: why)

        def no_thread(*args: object, **kwargs: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr("asyncio.create_subprocess_exec", no_thread)
        with pytest.raises(SchedulerError, match="cannot run true: can't start new thread"):
            await command.run(words, {}, 5.0, explain=lambda _, why: why)

    asyncio.run(run())


def test_pilots_of_an_earlier_daemon_are_kept_while_they_cannot_be_seen(
    local: LocalScheduler,
) -> None:
    pilot = Pilot(tag="t1", node="n1")

    async def run() -> None:
        await local.poll()
        await local.submit(pilot, "secret")
        children, local._children = local._children, []
        await until_true(lambda: list(map(local._pilot, [child.pid for child, _ in children])) == [pilot])
        assert await local.pilots() == (pilot,)
        local._born -= SETTLED_S  # no other can have come
        with no_descriptors(), pytest.raises(SchedulerError, match="cannot read of process"):
            await local.pilots()
        assert await local.pilots() == (pilot,)
        await local.cancel([pilot])
        await local.close()
        for child, _ in children:
            child.wait()

    asyncio.run(run())


def test_a_local_node_that_is_taken_loses_its_pilot_as_soon_as_that_can_be_found(
    local: LocalScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    pilot = Pilot(tag="t1", node="n1")

    async def run() -> None:
        await local.poll()
        await local.submit(pilot, "secret")
        assert await local.pilots() == (pilot,)
        with no_descriptors():
            with pytest.raises(SchedulerError, match="Too many open files"):
                await local.pilots()
            await until_true(lambda: "cannot kill the pilots" in caplog.text)
            with pytest.raises(SchedulerError):
                await local.poll()
            with pytest.raises(SchedulerError):
                await local.submit(pilot, "secret")
            with pytest.raises(SchedulerError):
                await local.cancel([pilot])
        (child, _), *_ = local._children
        await until_true(lambda: child.poll() is not None)
        assert await local.pilots() == ()
        await local.close()

    asyncio.run(run())
    until(lambda: not local._children, "no pilot is left")
