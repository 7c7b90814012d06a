"""Two trainers that take turns on the same nodes, with a real daemon, agents and workers."""

from __future__ import annotations

import json
import os
import random
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.audit import audit
from tests.support.processes import read
from tests.support.site import Site, running_at_will
from tests.support.waiting import LONG_S

WORK = 16_000
NAMES = ("one", "two")
COMPUTES_S = ELSEWHERE_S = "0.05"


def submit(site: Site, name: str, **more: Any) -> Path:
    """A trainer that computes for half of its time, until a file `fast` is in its folder."""
    where = site.root / name
    where.mkdir()
    spec = {"samples": WORK, "n_min": 2, "share": "time", "memory_gb": 0.1, "scalability": "auto"}
    words = ("count.py", str(where), COMPUTES_S, ELSEWHERE_S)
    site.submit(name, *words, **{**spec, "curve": None, "checkpoint": {"every_s": 0.3}, **more})
    return where


def notes_of(where: Path) -> list[dict[str, Any]]:
    """What the workers of a trainer have noted of their steps."""
    lines = [line for path in where.glob("*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.endswith("}")]


def both_train(site: Site) -> None:
    for name in NAMES:
        site.until_members(name, "a", "b")


def until_measured(site: Site) -> None:
    def known() -> bool:
        return all("of its speed alone, and" in site.trainer(name)["turns"] for name in NAMES)

    site.until(known, LONG_S, "it is measured what turns gain")


def until_further(site: Site, *names: str, steps: int = 20) -> None:
    before = {name: site.trainer(name)["step"] for name in names}
    site.until(
        lambda: all(site.trainer(name)["step"] >= before[name] + steps for name in names),
        LONG_S,
        f"{names} take {steps} steps more",
    )


def worker_of(site: Site, name: str, node: str) -> int:
    """The process that trains a trainer on a node, once there is one."""
    number, found = site.trainer(name)["id"], list[int]()
    forked = f"(bftrainer: trainer {number} on {node},".encode()

    def there() -> bool:
        found[:] = [pid for pid in site.workers_on(node) if forked in read(pid, "cmdline")]
        return len(found) == 1

    site.until(there, LONG_S, f"a worker of {name} on {node}")
    return found[0]


def finish(site: Site, *folders: Path) -> None:
    for where in folders:
        (where / "fast").touch()
    for name, where in zip(NAMES, folders, strict=True):
        assert site.until_ended(name)["status"] == "completed"
        audit(where, WORK)


def test_two_trainers_compute_in_turn_and_a_holder_that_dies_or_stands_still_holds_up_nobody() -> None:
    with running_at_will("a", "b") as site:
        folders = [submit(site, name) for name in NAMES]
        site.change(give="ab")
        both_train(site)
        until_measured(site)
        assert {row["trainer"] for row in site.get("pool")["nodes"]} == {"one, two"}
        assert "one and two take turns" in site.get("status")["last_plan"]["note"]
        begun = max(note["began"] for where in folders for note in notes_of(where))
        until_further(site, *NAMES)
        for node in ("a", "b"):
            own = [
                (note["began"], note["done"], name)
                for name, where in zip(NAMES, folders, strict=True)
                for note in notes_of(where)
                if note["node"] == node and note["began"] > begun
            ]
            assert {name for _, _, name in own} == set(NAMES)
            for (_, done, _), (began, _, _) in pairwise(sorted(own)):
                assert done <= began, "two compute at once"

        site.kill_daemon()
        site.start()
        until_further(site, *NAMES)
        assert not [event for event in site.get("events", limit=1000) if event["kind"] == "WorkerLost"]

        stopped = worker_of(site, "one", "a")
        os.kill(stopped, signal.SIGSTOP)
        until_further(site, "two")
        both_train(site)
        until_further(site, *NAMES)
        os.kill(worker_of(site, "two", "b"), signal.SIGKILL)
        until_further(site, "one")
        both_train(site)
        finish(site, *folders)
        assert {
            event["data"]["node"] for event in site.get("events", limit=1000) if event["kind"] == "WorkerLost"
        } == {"a", "b"}


@pytest.mark.nightly
def test_workers_that_are_killed_at_random_lose_no_step_while_a_member_is_left() -> None:
    chance = random.Random(5)
    with running_at_will("a", "b") as site:
        folders = [submit(site, name) for name in NAMES]
        site.change(give="ab")
        for _ in range(8):
            both_train(site)
            until_further(site, *NAMES, steps=chance.randrange(5))
            os.kill(worker_of(site, chance.choice(NAMES), chance.choice("ab")), signal.SIGKILL)
        both_train(site)
        finish(site, *folders)
        for name in NAMES:
            lost = [pause["lost_steps"] for pause in site.get("pauses", limit=1000, trainer=name)]
            assert not any(lost), "a member was left each time"
