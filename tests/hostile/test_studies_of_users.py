"""Studies that attack: small texts that stand for much, and many requests about them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.test_users import answers
from tests.support.hostile.agent import posing
from tests.support.hostile.world import BAD, World

ASKED = 100
WAYS = ("", "?trials=100", "?trials=100&course=1000", "?course=0")


def study(**keys: Any) -> str:
    """A study of one trial on one node; `keys` in place of its own."""
    usual = {
        "name": "odd",
        "trainer": {"command": ["true", "{p}"], "nodes": {"max": 1}},
        "space": {"p": {"float": [0.0, 1.0]}},
        "metric": "m",
        "trials": 1,
        "budget": 1,
        "sampler": "random",
    }
    return json.dumps(usual | keys, ensure_ascii=False)


def command(*words: str, **more: Any) -> dict[str, Any]:
    return {"command": ["true", *words], "nodes": {"max": 1}, **more}


SINGLES = {f"p{n}": {"choice": [0]} for n in range(96)}
WIDE = {name: {"choice": list(range(256))} for name in "ab"}
MANY = {"trials": 256, "parallelism": 256}
STUDIES: dict[str, str] = {
    "small steps": study(sampler="grid", space={"p": {"float": [0.0, 1.0], "step": 1e-12}}),
    "smallest steps": study(sampler="grid", space={"p": {"float": [0.0, 1e300], "step": 1e-300}}),
    "all whole numbers": study(sampler="grid", space={"p": {"int": [0, 10**12]}}),
    "many whole numbers": study(sampler="grid", space={"p": {"int": [0, 15_000_000]}}),
    "many points": study(sampler="grid", space=WIDE | SINGLES, trainer=command("{params}"), trials=100_000),
    "long commands": study(
        trainer=command("{params}" * 1900), space={"p": {"choice": ["é" * 7_000]}}, **MANY
    ),
    "long environments": study(
        trainer=command("{p}", env={f"E{n}": "{params}" * 100 for n in range(20)}),
        space={"p": {"choice": ["é" * 7_000]}},
        **MANY,
    ),
    "a tree of conditions": study(
        space={f"p{n}": {"choice": [0, 1]} | ({"when": {f"p{n - 1}": 1}} if n else {}) for n in range(64)},
        trainer=command("{params}"),
        sampler="grid",
    ),
    "many rungs": study(
        stopping={"asha": {"least": 1, "eta": 2}}, budget=10**15, deadline="1h", trials=5_000
    ),
    "brackets": study(stopping={"hyperband": {"least": 1, "eta": 2}}, budget=10**15, trials=5_000),
    "many parameters": study(
        space={f"p{n}": {"float": [0.0, 1.0]} for n in range(100)},
        trainer=command("{params}"),
        sampler="tpe",
        trials=5_000,
    ),
    "a URL of colons": study(storage="://:" * 7_000),
    "a URL of links": study(storage="sqlite:////" + "0/../" * 190 + "x.db"),
    "a URL of the daemon": study(storage="sqlite:////proc/self/cwd/bftrainer.db"),
    "odd numbers": study(space={"p": {"choice": [1.5]}}).replace("1.5", "NaN"),
    "formulas": study(metric="$\\frac{", space={"p": {"choice": ["$\\frac{", "=1+1", "<script>"]}}),
    "escapes": study(metric="\x1b]0;owned\x07", space={"p": {"choice": ["\x1b[2J"]}}),
    "a parameter called as a key": study(space={"choice": 1}),
    "deep": study(space={"p": {"choice": [[[[[[1]]]]]]}}),
    "a whole study in a trainer": study(trainer=json.loads(study())),
}


@pytest.fixture
def attacked(world: World) -> Iterator[World]:
    """The world; studies that were taken are cancelled afterwards."""
    yield world
    for row in world.get("studies", limit=0) if world.running() else ():
        world.client.call("POST", f"studies/{row['id']}/cancel")


def posted(spec: str) -> tuple[str, str, bytes]:
    """The request that submits a study."""
    return "POST", "/v1/studies", json.dumps({"spec": spec, "name": "odd.yaml", "base": "/"}).encode()


def test_every_study_is_answered_and_none_harms(attacked: World) -> None:
    specs = [text.replace('"odd"', f'"odd{number}"') for number, text in enumerate(STUDIES.values())]
    with attacked.watched() as watch:
        found = asyncio.run(answers(attacked, map(posted, specs)))
        assert all(status in (201, 400, 413) for status in found.values()), found
        shown = [("GET", f"/v1/studies/odd{n}{way}", b"") for n in range(len(specs)) for way in WAYS]
        found = asyncio.run(answers(attacked, shown))
        assert all(status in (200, 404) for status in found.values()), found
        watch.until_jobs(3)
    watch.assert_unharmed()


def test_a_storage_over_links_is_not_followed(attacked: World, tmp_path: Path) -> None:
    """2,400 links, each of which leads through 800 others' folders to the next."""
    (tmp_path / "d").mkdir()
    for chain in range(3):
        for number in range(800):
            name = f"{chain}_{number}" if number else f"{chain}"
            (tmp_path / name).symlink_to("d/../" * 800 + (f"{chain}_{number + 1}" if number < 799 else "d"))
    url = f"sqlite:///{tmp_path}/0/../1/../2/x.db"
    with attacked.watched() as watch:
        found = asyncio.run(answers(attacked, [posted(study(storage=url))]))
        assert set(found.values()) == {201}
        watch.until_jobs(3)
    watch.assert_unharmed()
    assert max(turn.get("wall_s", 0.0) for turn in watch.turns() or [{}]) < 5.0, watch.slowest()


def test_orders_without_end_cost_others_nothing(attacked: World) -> None:
    specs = study(name="many", trials=256, parallelism=64, trainer={**command("{p}"), "nodes": {"max": 4}})
    orders = [
        ("POST", "/v1/studies/many/priority", json.dumps({"priority": 0.1 + n % 9 / 10}).encode())
        for n in range(ASKED)
    ]
    orders += [("POST", f"/v1/studies/many/{('pause', 'resume')[n % 2]}", b"") for n in range(ASKED)]
    with attacked.watched() as watch:
        assert set(asyncio.run(answers(attacked, [posted(specs)])).values()) == {201}
        asyncio.run(answers(attacked, orders))
        attacked.other("next")
        watch.until_jobs(3)
    watch.assert_unharmed()


def test_an_agent_that_counts_its_gpus_again_and_again_costs_few_plans(attacked: World) -> None:
    attacked.other(BAD)
    node = attacked.node_of(BAD)
    tag, secret = attacked.secret(node)

    async def count() -> None:
        async with posing(attacked.agents_at, node, tag, secret, []) as agent:
            for n in range(ASKED):
                agent.say({"type": "devices", "devices": {"kind": "cuda", "count": n % 8}})
                await agent.sent()
                await asyncio.sleep(0.02)

    with attacked.watched() as watch:
        asyncio.run(count())
        watch.until_jobs(3)
    watch.assert_unharmed()
    events = attacked.get("events", limit=1000)
    assert sum(event["kind"] == "GpusChanged" for event in events) < ASKED / 4
