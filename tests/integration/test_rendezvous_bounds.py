"""Whatever anybody sends to a trainer's helpers: no other trainer, and no daemon, suffers."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import DistNetworkError, TCPStore  # type: ignore[attr-defined]

from bftrainer.elastic.programs.confine import MB
from bftrainer.launch.torchrun.stores import StoreHost
from tests.support.driver_alone import as_daemon, driver_alone
from tests.support.waiting import until, until_true

MEMORY_MB, CONNECTIONS = 32, 128
TIMEOUT = timedelta(seconds=30)
USED_UP = "its memory or its connections were used up"


class Opened:
    """The stores of one host: their ports, and why they were lost, by trainer."""

    def __init__(self) -> None:
        self.host = StoreHost("127.0.0.1", memory_mb=MEMORY_MB, connections=CONNECTIONS)
        self.ports: dict[int, int] = {}
        self.lost: dict[int, str] = {}

    async def open(self, trainer: int, run: int) -> int:
        self.ports.pop(trainer, None)
        self.host.open(
            trainer,
            run,
            lambda port: self.ports.update({trainer: port}),
            lambda reason: self.lost.update({trainer: reason}),
        )
        await until_true(lambda: trainer in self.ports)
        return self.ports[trainer]


def with_stores(story: Callable[[Opened], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        opened = Opened()
        try:
            await story(opened)
        finally:
            opened.host.close()
            if opened.host._process is not None:
                await opened.host._process.wait()

    asyncio.run(run())


def client(port: int) -> TCPStore:
    return TCPStore("127.0.0.1", port, is_master=False, timeout=TIMEOUT)


def fill(port: int) -> None:
    """Put more into a store than it may hold."""
    attacker = client(port)
    for number in range(10 * MEMORY_MB):
        attacker.set(f"k{number}", "x" * MB)


@contextmanager
def crowd(port: int, size: int) -> Iterator[None]:
    """Connections that say nothing."""
    with ExitStack() as stack:
        for _ in range(size):
            connection = socket.socket()
            connection.setblocking(False)
            stack.enter_context(connection)
            connection.connect_ex(("127.0.0.1", port))
        yield


def test_a_store_that_is_filled_ends_alone_and_the_next_run_has_a_new_one() -> None:
    async def story(opened: Opened) -> None:
        victim, other = await opened.open(1, 5), await opened.open(2, 6)
        kept = client(other)
        kept.set("a", "b")
        with pytest.raises(DistNetworkError):
            await asyncio.to_thread(fill, victim)
        await until_true(lambda: opened.lost)
        assert opened.lost == {1: USED_UP}
        assert kept.get("a") == b"b", "the other trainer's store is a process of its own"
        again = client(await opened.open(1, 6))
        again.set("c", "d")
        assert again.get("c") == b"d"

    with_stores(story)


def test_a_store_with_too_many_connections_ends_alone_too() -> None:
    async def story(opened: Opened) -> None:
        port = await opened.open(1, 5)
        with crowd(port, 2 * CONNECTIONS):
            await until_true(lambda: opened.lost)
        assert opened.lost == {1: USED_UP}

    with_stores(story)


def test_the_kernel_ends_a_store_before_the_daemon_and_the_host_is_told_of_any_end() -> None:
    async def story(opened: Opened) -> None:
        await opened.open(1, 5)
        assert opened.host._process is not None
        pid = opened.host._process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert Path(f"/proc/{child}/oom_score_adj").read_text() == "1000\n"
        soft, _ = resource.prlimit(int(child), resource.RLIMIT_NOFILE)
        assert soft == CONNECTIONS
        os.kill(int(child), signal.SIGKILL)
        await until_true(lambda: opened.lost)
        assert opened.lost == {1: "SIGKILL ended it"}

    with_stores(story)


def test_if_the_host_itself_ends_all_runs_are_told_and_new_ones_find_another() -> None:
    async def story(opened: Opened) -> None:
        await opened.open(1, 5)
        assert opened.host._process is not None
        opened.host._process.kill()
        await until_true(lambda: opened.lost)
        assert opened.lost == {1: "the host of all stores ended"}
        client(await opened.open(1, 6)).set("a", "b")

    with_stores(story)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[int]:
    """The port of a Horovod driver that listens on the loopback address."""
    pytest.importorskip("horovod", reason="Horovod is not installed; run make horovod")
    bounds = ["--address", "127.0.0.1", "--memory-mb", str(MEMORY_MB), "--connections", str(CONNECTIONS)]
    with driver_alone(tmp_path, *bounds) as path, as_daemon(path) as daemon:
        yield json.loads(daemon.makefile().readline())["port"]


def put(port: int, key: str, body: bytes, length: int | None = None) -> int:
    """The status that the driver answers; 0 where it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            head = f"PUT {key} HTTP/1.0\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"
            connection.sendall(head.encode() + body)
            answer = connection.recv(100)
        except OSError:
            return 0
    return int(answer.split()[1]) if answer else 0


def test_a_driver_keeps_no_more_than_it_may_and_goes_on(driver: int) -> None:
    assert put(driver, "/s/large", b"", 1 << 30) == 413
    assert put(driver, "/s/odd", b"", -1) == 413
    kept = [put(driver, f"/s/k{number}", b"x" * MB) for number in range(MEMORY_MB // 2)]
    assert kept[0] == 200
    assert kept[-1] == 507


def test_a_driver_survives_a_crowd(driver: int) -> None:
    with crowd(driver, 4 * CONNECTIONS):
        pass
    until(lambda: put(driver, "/s/k", b"x") == 200, "it serves again")


def test_a_host_that_the_daemon_has_not_named_gets_no_place(driver: int) -> None:
    with socket.create_connection(("127.0.0.1", driver), timeout=60) as stranger:
        stranger.sendall(b"GET /rank_and_size/stranger.1:0 HTTP/1.0\r\n\r\n")
        said = b"".join(iter(lambda: stranger.recv(1000), b""))
    assert said.endswith(b"-1,-1,-1,-1,-1,-1")


def test_a_name_that_no_line_to_the_daemon_holds_is_unknown(driver: int) -> None:
    with socket.create_connection(("127.0.0.1", driver), timeout=60) as stranger:
        stranger.sendall(b"GET /rank_and_size/" + b"\xe9" * 60_000 + b":0 HTTP/1.0\r\n\r\n")
        assert b"404" in stranger.recv(1000)


def test_a_driver_listens_at_its_address_only(driver: int) -> None:
    with socket.socket() as other:
        other.settimeout(5)
        assert other.connect_ex(("127.0.0.2", driver)) != 0


def test_a_store_says_whether_any_process_has_ever_used_it() -> None:
    async def story(opened: Opened) -> None:
        answers: list[bool | None] = []

        async def ask(trainer: int, run: int) -> bool | None:
            count = len(answers)
            opened.host.used(trainer, run, answers.append)
            await until_true(lambda: len(answers) > count)
            return answers[-1]

        port = await opened.open(1, 1)
        assert await ask(1, 1) is False
        await asyncio.to_thread(lambda: client(port).set("rank 0", "there"))
        assert await ask(1, 1) is True
        assert await ask(1, 2) is None, "there is no such run"
        await opened.open(1, 2)
        assert await ask(1, 2) is False, "every run has a store of its own"

    with_stores(story)
