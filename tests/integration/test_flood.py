"""Another user's idle and half-open connections: others, agents and the scheduler's commands go on.

The listeners, sockets and users are real; the flood comes from a process of another user.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bftrainer.api.answers import Answer, Answers
from bftrainer.api.client import Client, DaemonError
from bftrainer.daemon import descriptors
from bftrainer.daemon.listeners import Listeners
from bftrainer.errors import BftrainerError
from bftrainer.schedulers.shared import command
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.sources import load
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.wire.hub import Hub
from tests.support.waiting import until_true

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

FLOOD = """
import os, resource, socket, sys, time
path, (uid, idle, half) = sys.argv[1], map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
os.setuid(uid)
def connect(n):
    c = socket.socket(socket.AF_UNIX)
    try:
        c.connect(path)
        c.sendall(b"" if n < idle else b"POST /v1/trainers HTTP/1.1\\r\\nHost: x\\r\\nContent-Le")
    except OSError:
        pass
    return c
there = [connect(n) for n in range(idle + half)]
print("flooded", flush=True)
while True:  # whatever is closed comes again
    for n, c in enumerate(there):
        c.settimeout(0)
        try:
            gone = c.recv(1000) == b""
        except BlockingIOError:
            gone = False
        except OSError:
            gone = True
        if gone:
            c.close()
            there[n] = connect(n)
    time.sleep(0.05)
"""
NOBODY = pwd.getpwnam("nobody").pw_uid
LIMIT = 400
"""Descriptors of this process: much less than the flood would take."""


class Service:
    """Answers who asks."""

    answers = Answers(lambda bound, by: None, 1_000_000, 10.0)
    studies = None  # nobody asks for any

    def status(self, caller: Any) -> dict[str, Any]:
        return {"user": caller.user}

    def liveness_problems(self) -> list[str]:
        return []

    readiness_problems = readiness_warnings = liveness_problems

    async def metrics(self, caller: Any) -> Answer:
        return Answer(f"admin={caller.admin}\n".encode())


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can enter."""
    folder = Path(tempfile.mkdtemp(prefix="bft-flood-"))
    folder.chmod(0o755)
    (folder / "state").mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
    monkeypatch.setattr(descriptors, "available", lambda wanted: LIMIT)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def listening(
    place: Path,
    tell: Callable[[Telemetry], Awaitable[None]],
    tcp: socket.socket | None = None,
    **settings: Any,
) -> Telemetry:
    """Tell a story while the daemon's listeners are open."""
    own = LiveSettings(
        load(
            {"state_dir": place / "state", "socket": place / "daemon.sock", **settings},
            environ={"XDG_CONFIG_HOME": str(place)},
        )
    )
    telemetry = Telemetry()
    listeners = Listeners(
        settings=own,
        service=Service(),  # type: ignore[arg-type]
        hub=Hub(lambda tag: "secret"),
        telemetry=telemetry,
        tcp=tcp,
    )

    async def run() -> None:
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            await listeners.open(stack)
            await tell(telemetry)

    asyncio.run(run())
    assert not list(place.rglob("*.sock"))
    return telemetry


SITE = {"mode": "site", "exec_prefix": "sudo -n -u {user} --"}


async def nothing(telemetry: Telemetry) -> None:
    """No story: to open the listeners is all."""


def test_a_site_does_not_listen_where_another_user_could_put_a_false_daemon(place: Path) -> None:
    listening(place, nothing, **SITE)
    os.chown(place, NOBODY, -1)
    listening(place, nothing)
    with pytest.raises(BftrainerError, match="user nobody may put something else in its place"):
        listening(place, nothing, **SITE)


def status(place: Path) -> Any:
    return Client(place / "daemon.sock").call("GET", "status")


@asynccontextmanager
async def flooding(place: Path, uid: int, idle: int, half: int) -> AsyncIterator[None]:
    """A process of a user holds so many connections, or tries to."""
    words = [FLOOD, str(place / "daemon.sock"), *map(str, (uid, idle, half))]
    flood = subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE)
    assert flood.stdout is not None
    try:
        assert await asyncio.to_thread(flood.stdout.readline) == b"flooded\n"
        yield
    finally:
        flood.kill()
        flood.wait()
        flood.stdout.close()


async def answered(at: Path) -> bytes:
    """What the agents' listener says to a request that is no agent's."""
    reader, writer = await asyncio.open_unix_connection(at)
    writer.write(b"GET /v1/agent HTTP/1.1\r\nHost: x\r\n\r\n")
    said = await reader.read()
    writer.close()
    return said


def test_a_flood_of_connections_keeps_nobody_else_out(place: Path, few_descriptors: None) -> None:
    async def tell(telemetry: Telemetry) -> None:
        async with flooding(place, NOBODY, 1000, 200):
            for _ in range(20):
                assert await asyncio.to_thread(status, place) == {"user": "root"}
                assert b"HTTP/1.1 4" in await answered(place / "state" / "agents.sock")
                done = await command.run(("true",), {}, 10.0, explain=lambda _, why: why)
                assert done.code == 0
            await until_true(lambda: bool(telemetry.bounds.last_hour()))

    telemetry = listening(place, tell, **SITE)
    assert f"uid {NOBODY}" in {hits.most_by for hits in telemetry.bounds.last_hour()}
    (told,) = telemetry.troubles.texts(details=False)
    assert f"the limit of {LIMIT} open files leaves room for" in told
    assert not telemetry.troubles.texts(details=False, blocking=True)


def test_a_users_own_flood_does_not_keep_out_that_users_commands_for_ever(place: Path) -> None:
    async def tell(telemetry: Telemetry) -> None:
        async with flooding(place, os.geteuid(), 100, 20):
            pass
        assert await asyncio.to_thread(status, place) == {"user": "root"}

    listening(place, tell)


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("mode", [{}, SITE])
def test_a_port_that_every_user_can_read_has_names_only_where_the_settings_say_so(
    place: Path, mode: dict[str, str], allowed: bool
) -> None:
    async def tell(telemetry: Telemetry) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert f"admin={allowed}".encode() in await reader.read()
        writer.close()

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    more: dict[str, Any] = {"metrics_port": port, "metrics_trainers": allowed}
    listening(place, tell, **(mode | more))


def test_users_and_agents_do_not_share_a_listener(place: Path) -> None:
    async def tell(telemetry: Telemetry) -> None:
        agents = Client(place / "state" / "agents.sock")
        for path in ("status", "trainers"):
            with pytest.raises(DaemonError, match=f"GET /v1/{path}: Not Found"):
                await asyncio.to_thread(agents.call, "GET", path)
        with pytest.raises(DaemonError, match="GET /v1/agent: Not Found"):
            await asyncio.to_thread(Client(place / "daemon.sock").call, "GET", "agent")
        assert (place / "state" / "agents.sock").stat().st_mode & 0o777 == 0o600

    listening(place, tell)
