"""State that is streamed to newcomers: exact, and no worse for any death meanwhile."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from audit import audit

from bftrainer.testing.workers import Workers

SCRIPT = str(Path(__file__).parent / "scripts" / "shadow.py")
SAMPLES = 6_000
SLOW = ("0.005", "65536")  # 64 KiB a step: some hundred steps


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with Workers(tmp_path, samples=SAMPLES) as workers:
        yield workers


def start(workers: Workers, kind: str, *nodes: str, options: tuple[str, ...] = ()) -> None:
    for node in nodes:
        workers.start(node, [sys.executable, SCRIPT, kind, str(workers.folder), *options])
    for node in nodes:
        workers.wait(node, "ready", 120)


def notes(workers: Workers) -> list[dict[str, Any]]:
    lines = [line for path in workers.folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.endswith("}")]


def eventually(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def steps(workers: Workers) -> int:
    return max((note["step"] for note in notes(workers)), default=0)


def advance(workers: Workers, count: int) -> None:
    goal = steps(workers) + count
    eventually(lambda: steps(workers) >= goal, f"{count} more steps")


def same_states(workers: Workers) -> int:
    """Assert that all who took a step together had the same state after it; how many such there were."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for note in notes(workers):
        found[note["step"], note["generation"]].append(note["digest"])
    shared = {key: digests for key, digests in found.items() if len(digests) > 1}
    differing = [key for key, digests in shared.items() if len(set(digests)) > 1]
    assert not differing, f"states differ after (step, generation) {differing[:5]}"
    return len(shared)


def ended(workers: Workers, *nodes: str) -> None:
    for node in nodes:
        assert workers.wait(node, "exited", 120)["code"] == 0, (workers.folder / f"{node}.log").read_text()


@pytest.mark.parametrize("kind", ["sgd", "adamw", "odd"])
def test_a_newcomer_has_the_members_state_to_the_bit(workers: Workers, kind: str) -> None:
    start(workers, kind, "a", "b", "c")
    workers.regroup("a", "b")
    advance(workers, 5)
    workers.regroup("a", "b", "c")
    caught_up = workers.wait("c", "caught_up")
    assert caught_up["bytes"] > 4 * 1024 * 1024
    ended(workers, "a", "b", "c")
    audit(workers.folder, SAMPLES)
    same_states(workers)
    three = [n for n in notes(workers) if n["size"] == 3]
    assert {n["rank"] for n in three} == {0, 1, 2}, "the newcomer took its share in the end"
    joined = workers.wait("c", "joined")
    assert caught_up["step"] >= joined["step"] + 3, "in several chunks"
    if kind == "odd":
        first = min((n for n in three if n["rank"] == 2), key=lambda n: n["step"])
        assert first["step"] - 5 < first["seen"] <= first["step"] + 1, "statistics come along"
