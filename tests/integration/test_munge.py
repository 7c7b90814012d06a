"""Requests over TCP, with credentials of a real munged."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from bftrainer.api.answers import Answer, Answers
from bftrainer.api.callers import Callers
from bftrainer.api.client import Client, DaemonError
from bftrainer.api.munge import MAX_AGE_S, Munge, MungeError, digest
from bftrainer.api.routes import users_application
from bftrainer.daemon.listeners import REQUEST_KB
from tests.support.private_munge import running_munge

MAX_REQUEST = REQUEST_KB * 1000

pytestmark = pytest.mark.skipif(shutil.which("munged") is None, reason="munge is not installed")


@pytest.fixture(scope="module")
def munge() -> Iterator[Munge]:
    with running_munge() as socket:
        yield Munge(socket)


class Echo:
    """A service that says who asked for what."""

    answers = Answers(lambda bound, by: None, 1_000_000, 10.0)
    studies = None  # nobody asks for any

    async def trainers(self, caller: Any, *_: int) -> Answer:
        return Answer(json.dumps([caller.user, caller.admin]).encode())

    async def rows(self, caller: Any, what: str, limit: int, trainer: str | None, _: int | None) -> Answer:
        return Answer(json.dumps([caller.user, what, limit, trainer]).encode())

    async def submit(self, caller: Any, *texts: str | None) -> dict[str, object]:
        return {"user": caller.user, "texts": texts}

    def liveness_problems(self) -> list[str]:
        return []

    readiness_problems = readiness_warnings = liveness_problems


def serve(callers: Callers, ask: Callable[[int], Coroutine[Any, Any, Any]]) -> Any:
    """What `ask(port)` comes to while somebody listens there."""

    async def run() -> Any:
        async with TestServer(users_application(Echo(), callers, max_request=MAX_REQUEST)) as server:  # type: ignore[arg-type]
            return await ask(server.port or 0)

    return asyncio.run(run())


def call(munge: Munge, *what: Any, callers: Callers | None = None, **how: Any) -> Any:
    async def ask(port: int) -> Any:
        client = Client(f"127.0.0.1:{port}", munge)
        return await asyncio.to_thread(client.call, *what, **how)

    return serve(callers or Callers(site=True, munge=munge), ask)


def send(munge: Munge, credential: str | None, method: str = "GET", target: str = "/v1/trainers") -> Any:
    async def ask(port: int) -> Any:
        headers = {} if credential is None else {"Authorization": f"Munge {credential}"}
        async with (
            ClientSession() as session,
            session.request(method, f"http://127.0.0.1:{port}{target}", headers=headers) as answer,
        ):
            return answer.status, (await answer.json())

    return serve(Callers(site=True, munge=munge), ask)


def credential(munge: Munge, method: str = "GET", target: str = "/v1/trainers", body: bytes = b"") -> str:
    return asyncio.run(munge.encode(digest(method, target, body)))


def test_munge_says_who_calls(munge: Munge) -> None:
    assert call(munge, "GET", "trainers") == ["root" if os.geteuid() == 0 else os.environ["USER"], True]
    query = {"limit": 3, "trainer": "ä b/c?d=e&f%2F+g"}
    assert call(munge, "GET", "events", **query)[1:] == ["events", *query.values()]
    texts = {"spec": "ünïcode: [1]\n", "name": "a b.yaml", "base": "/x"}
    assert call(munge, "POST", "trainers", body=texts)["texts"] == [*texts.values(), None]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_another_caller(munge: Munge) -> None:
    made = subprocess.run(
        ["munge", "--socket", str(munge.socket)],
        input=digest("GET", "/v1/trainers", b""),
        capture_output=True,
        text=True,
        check=True,
        user="nobody",
    )
    assert send(munge, made.stdout.strip()) == (200, ["nobody", False])


def test_a_credential_serves_once(munge: Munge) -> None:
    shown = credential(munge)
    assert send(munge, shown)[0] == 200
    status, answer = send(munge, shown)
    assert status == 401
    assert answer["error"].startswith("the munge credential is refused: Replayed credential")


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("DELETE", "/v1/trainers", b""),
        ("GET", "/v1/trainers?limit=1", b""),
        ("GET", "/v1/trainers/", b""),
        ("GET", "/v1/trainers", b"{}"),
    ],
)
def test_a_credential_serves_for_one_request(munge: Munge, method: str, target: str, body: bytes) -> None:
    code, said = send(munge, credential(munge, method, target, body))
    assert code == 401 and "for another request" in said["error"]


@pytest.mark.parametrize("late_s", [MAX_AGE_S + 1, -60])
def test_a_credential_serves_at_its_time(munge: Munge, late_s: float) -> None:
    later = Munge(munge.socket, now=lambda: time.time() + late_s)
    code, said = send(later, credential(munge))
    assert code == 401 and f"not of the last {MAX_AGE_S} s" in said["error"]


@pytest.mark.parametrize(
    "shown", [None, "", "MUNGE:", "MUNGE:AwQDAADsO:", "x" * 5000, "--socket=/x", "MUNGE:\u00e4:"]
)
def test_what_is_no_credential_is_refused(munge: Munge, shown: str | None) -> None:
    code, said = send(munge, shown)
    assert code == 401 and "munge" in said["error"]


def test_bytes_that_are_no_text_are_no_credential(munge: Munge) -> None:
    with pytest.raises(MungeError, match="no munge credential"):  # as aiohttp hands on such a header
        asyncio.run(munge.decode(b"\xff".decode(errors="surrogateescape"), digest("GET", "/", b"")))


def test_a_credential_of_another_cluster_is_refused(munge: Munge) -> None:
    with running_munge() as other:
        code, said = send(munge, credential(Munge(other)))
    assert code == 401 and "refused: Invalid credential" in said["error"]


def test_over_tcp_nobody_is_known_without_munge(munge: Munge) -> None:
    with pytest.raises(DaemonError, match="the daemon's setting munge is off"):
        call(munge, "GET", "trainers", callers=Callers(site=True))


def test_where_munge_does_not_run(munge: Munge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MungeError, match="does munged run on this machine"):
        call(Munge(tmp_path / "nobody"), "GET", "trainers")
    code, said = send(Munge(tmp_path / "nobody"), credential(munge))
    assert code == 401 and "refused" in said["error"]
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MungeError, match=r"cannot run munge: .*; is munge installed"):
        call(munge, "GET", "trainers")
