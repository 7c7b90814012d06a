"""Users of the API that attack: each may submit trainers and ask what it likes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from tests.support.hostile.attacks import attacking
from tests.support.hostile.world import World

ANSWER_S = 5.0
DEEP = 100_000
VALID = {"name": "odd", "command": ["python", "x.py"], "nodes": {"max": 1}}
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in pairwise("abcdefghi")
)

SPECS: dict[str, str] = {
    "empty": "",
    "deep JSON": "[" * 15_000,
    "deep YAML": "a: " * 8_000,
    "deep flow": "{a: " * 8_000,
    "aliases": ALIASES,
    "itself": "name: &x [*x]\n",
    "tags": "name: !!python/object/apply:os.system ['touch /tmp/owned']\n",
    "many keys": "".join(f"key{n}: 1\n" for n in range(3_000)),
    "many documents": "---\n" * 10_000,
    "a huge number": json.dumps({**VALID, "weight": 1}).replace("1}", "9" * 5_000 + "}"),
    "a tiny number": json.dumps({**VALID, "weight": 1e-320}),
    "not a number": json.dumps({**VALID, "weight": float("nan")}),
    "all nodes of the world": json.dumps({**VALID, "nodes": {"min": 1_000_000, "max": 1_000_000}}),
    "no text": "\x00\x01\x02",
    "surrogates": '{"name": "odd", "command": ["\\ud800"], "nodes": {"max": 1}}',
    "escapes": json.dumps({**VALID, "workdir": f"/{ESCAPE}", "command": [ESCAPE], "env": {"A": ESCAPE}}),
    "formats": json.dumps({**VALID, "workdir": "{user.__class__}", "command": ["%s%s%n", "{0.__class__}"]}),
    "a long name": json.dumps({**VALID, "name": "x" * 10_000}),
    "paths": json.dumps({**VALID, "name": "..", "workdir": "/../../../proc/self/fd/0"}),
    "a long curve": json.dumps({**VALID, "curve": [[n, n] for n in range(1, 2_500)]}),
    "a steep curve": json.dumps({**VALID, "nodes": {"max": 2}, "curve": [[1, 1e-300], [2, 1e300]]}),
}
BODIES: dict[str, bytes] = {
    "no JSON": b"{",
    "deep": b"[" * DEEP,
    "deep objects": b'{"a":' * DEEP,
    "no object": b"[]",
    "no text": b'{"spec": 1, "name": [], "base": {}}',
    "no UTF-8": b'{"spec": "\xff\xfe", "name": "x", "base": "/"}',
    "surrogates": b'{"spec": "\\ud800", "name": "\\ud800", "base": "/\\ud800"}',
    "long texts": json.dumps({"spec": "", "name": "x" * 400_000, "base": "/" + "x" * 400_000}).encode(),
    "a huge number": b'{"spec": ' + b"9" * 100_000 + b"}",
    "many keys": json.dumps({f"key{n}": n for n in range(50_000)}).encode(),
}
PATHS = (
    *("/v1/trainers?limit=" + "9" * 4_300, "/v1/events?limit=-1", "/v1/events?limit=%00", "/v1/trainers/%00"),
    *(
        "/v1/trainers/..%2f..%2fetc",
        "/v1/trainers/" + "9" * 400,
        "/v1/trainers/%F0%9F%92%A9",
        "/v1/trainers/-1",
    ),
    *("/v1/trainers/%ED%A0%80", "/v1/reports?trainer=%ED%A0%80", "/v1/events?trainer=" + "x" * 4_000),
    *("/v1/trainers/1e5", "/v1/trainers?skip=9999999999999999999", "/metrics?x=" + "y" * 4_000),
    *("/v1/trainers/9223372036854775808", "/v1/pauses?trainer='%20OR%201=1%20--", "/v1/agent", "/%%%"),
)


async def answers(world: World, asked: Iterable[tuple[str, str, bytes]]) -> dict[str, int]:
    """The status of each answer, by request; 0 for none."""
    found = {}
    connector = aiohttp.UnixConnector(path=str(world.socket))
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        for method, path, body in asked:
            url = aiohttp.client.URL(f"http://bftrainer{path}", encoded=True)
            try:
                async with http.request(method, url, data=body) as answer:
                    await answer.read()
                    found[f"{method} {path[:50]} {body[:30]!r}"] = answer.status
            except (aiohttp.ClientError, TimeoutError) as error:
                found[f"{method} {path[:50]} {body[:30]!r} {error!r}"] = 0
    return found


def posted(spec: str, name: str = "odd.yaml") -> tuple[str, str, bytes]:
    """The request that submits a spec."""
    return "POST", "/v1/trainers", json.dumps({"spec": spec, "name": name, "base": "/"}).encode()


def test_every_spec_is_answered_and_none_harms(world: World) -> None:
    with world.watched() as watch:
        found = asyncio.run(answers(world, (posted(spec) for spec in SPECS.values())))
        assert all(status in (201, 400, 413) for status in found.values()), found
        watch.until_jobs(3)
    watch.assert_unharmed()


def test_every_body_and_path_is_answered_and_none_harms(world: World) -> None:
    asked = [("POST", "/v1/trainers", body) for body in BODIES.values()]
    asked += [(method, path, b"") for path in PATHS for method in ("GET", "DELETE", "PUT")]
    with world.watched() as watch:
        found = asyncio.run(answers(world, asked))
        assert all(200 <= status < 500 for status in found.values()), found
        watch.until_jobs(3)
    watch.assert_unharmed()


def test_long_specs_at_once_harm_nothing(world: World) -> None:
    with world.watched() as watch, attacking("specs", at=world.socket, size=250_000, at_once=12):
        watch.until_jobs(5)
    watch.assert_unharmed()


def test_trainers_that_can_never_run_leave_the_nodes_to_others(world: World) -> None:
    never = {**VALID, "nodes": {"min": 1_000_000, "max": 1_000_000}, "weight": 1e9, "priority": 1e9}
    specs = [json.dumps({**never, "name": f"never-{n}"}) for n in range(30)]
    specs += [json.dumps({**never, "name": f"never-{n}-too", "weight": 1, "priority": 1}) for n in range(300)]
    with world.watched() as watch:
        asyncio.run(answers(world, map(posted, specs)))
        world.other("next")
        watch.until_jobs(3)
    watch.assert_unharmed()


def test_no_escape_sequence_of_a_spec_reaches_a_terminal(world: World) -> None:
    asyncio.run(answers(world, [posted(SPECS["escapes"])]))
    said = b""
    for words in (["show", "odd"], ["list"], ["status"], ["events"]):
        command = [sys.executable, "-m", "bftrainer", *words, "--state-dir", str(world.state)]
        said += subprocess.run(command, check=False, capture_output=True, env=world.environ).stdout
    assert b"\x1b]" not in said


@pytest.mark.parametrize("route", ["/v1/status", "/metrics", "/v1/trainers", "/v1/events?limit=10000"])
def test_to_ask_without_end_harms_nothing(world: World, route: str) -> None:
    with world.watched() as watch, attacking("asking", at=world.socket, paths=[route] * 3, per_s=200):
        watch.until_jobs(3)
    watch.assert_unharmed()


def test_readers_that_never_read_harm_nothing(world: World) -> None:
    async def ask() -> list[Any]:
        asked = []
        for _ in range(50):
            reader, writer = await asyncio.open_unix_connection(str(world.socket), limit=1)
            writer.write(b"GET /v1/events?limit=10000 HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
            asked.append((reader, writer))
        await asyncio.sleep(1.0)
        return asked

    with world.watched() as watch:
        asyncio.run(ask())
        watch.until_jobs(3)
    watch.assert_unharmed()
