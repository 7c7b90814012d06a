"""Clients that nobody knows: they can reach the daemon, and have no secret and no account that it serves."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hostile.attacks import attacking
from tests.support.hostile.world import World
from tests.support.passing import pass_lingering

GARBAGE = {
    "nothing": b"",
    "no HTTP": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 500,
    "zeros": b"\0" * 100_000,
    "a line without end": b"GET /" + b"x" * 1_000_000,
    "headers without end": b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(50_000)),
    "a length that is none": b"POST /v1/trainers HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "a length beyond all": b"POST /v1/trainers HTTP/1.1\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
    "two lengths": b"POST /v1/trainers HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    "chunks": b"POST /v1/trainers HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n" + b"x" * 500_000,
    "many requests": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 5_000,
    "a method that is none": b"\xff\xfe / HTTP/1.1\r\n\r\n",
    "half a socket": b"GET /v1/agent HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "a body without end": b"POST /v1/trainers HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n{",
}


@contextlib.contextmanager
def connection(at: Path) -> Iterator[socket.socket]:
    """A connection to the daemon."""
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(str(at))
        made.settimeout(5.0)
        yield made


def test_nothing_that_is_said_to_the_socket_harms_anything(world: World) -> None:
    with world.watched() as watch, contextlib.ExitStack() as stack:
        for at, said in itertools.product((world.socket, world.agents_at), GARBAGE.values()):
            for _ in range(3):
                made = stack.enter_context(connection(at))
                with contextlib.suppress(OSError):  # it may well be closed before all is said
                    made.sendall(said)
        watch.until_jobs(4)
    watch.assert_unharmed()


def test_connections_that_pass_what_takes_an_hour_to_close_harm_nothing(world: World) -> None:
    with world.watched() as watch, contextlib.ExitStack() as stack:
        for at in (world.socket, world.agents_at) * 5:
            made = stack.enter_context(connection(at))
            with contextlib.suppress(PermissionError):  # Linux 6.16 and later refuse it
                for far in pass_lingering(made, 3600):
                    stack.enter_context(far)
        watch.until_jobs(4)
    watch.assert_unharmed()


@pytest.mark.parametrize(("idle", "half_open"), [(500, 0), (0, 500), (1000, 200)])
def test_connections_that_stay_open_harm_nothing(world: World, idle: int, half_open: int) -> None:
    with (
        world.watched() as watch,
        attacking(
            "connections", by_stranger=True, at=world.socket, idle=idle, half_open=half_open, again_s=0.2
        ),
    ):
        watch.until_jobs(4)
    watch.assert_unharmed()


def test_long_introductions_of_agents_without_a_secret_harm_nothing(world: World) -> None:
    with (
        world.watched() as watch,
        attacking("hellos", by_stranger=True, at=world.agents_at, size=15_000_000, at_once=10),
    ):
        watch.until_jobs(5)
    watch.assert_unharmed()


def test_clients_that_send_nothing_but_pings_harm_nothing(world: World) -> None:
    with world.watched() as watch, attacking("pings", by_stranger=True, at=world.agents_at, at_once=20):
        watch.until_jobs(5)
    watch.assert_unharmed()


def test_many_agents_that_never_introduce_themselves_harm_nothing(world: World) -> None:
    with world.watched() as watch, contextlib.ExitStack() as stack:
        at = world.agents_at
        for _ in range(200):
            made = stack.enter_context(connection(at))
            with contextlib.suppress(OSError):
                made.sendall(
                    b"GET /v1/agent HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                )
        watch.until_jobs(3)
    watch.assert_unharmed()


def test_the_log_grows_by_little_whatever_strangers_do(world: World) -> None:
    before, at = len(world.log()), world.socket
    until = time.monotonic() + 2.0
    with world.watched(every_s=10.0):
        while time.monotonic() < until:
            with connection(at) as made, contextlib.suppress(OSError):
                made.sendall(GARBAGE["no HTTP"])
    assert len(world.log()) - before < 1_000_000
