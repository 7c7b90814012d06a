"""State that is streamed to newcomers: exact, and no worse for any death meanwhile."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bftrainer.testing.workers import ForkedWorkers
from tests.support.audit import audit
from tests.support.site import SCRIPTS
from tests.support.waiting import until

SCRIPT = str(SCRIPTS / "shadow.py")
SAMPLES = 5_000
SLOW = ("0.02", "262144")  # so few bytes a step that there is time for accidents
IN_PARTS = ("0", "524288")
STATE = 10_600_000  # bytes of parameters and momenta


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[ForkedWorkers]:
    with ForkedWorkers(tmp_path, samples=SAMPLES) as workers:
        yield workers


def start(workers: ForkedWorkers, kind: str, *nodes: str, options: tuple[str, ...] = ()) -> None:
    for node in nodes:
        workers.start(node, [sys.executable, SCRIPT, kind, str(workers.folder), *options])
    for node in nodes:
        workers.wait(node, "ready", 200)


def notes(workers: ForkedWorkers) -> list[dict[str, Any]]:
    lines = [line for path in workers.folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.endswith("}")]


def steps(workers: ForkedWorkers) -> int:
    return max((note["step"] for note in notes(workers)), default=0)


def advance(workers: ForkedWorkers, count: int) -> None:
    goal = steps(workers) + count
    until(lambda: steps(workers) >= goal, f"{count} more steps")


def same_states(workers: ForkedWorkers) -> int:
    """Assert that members that took a step together had the same state after it; returns the number of such
    steps."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for note in notes(workers):
        found[note["step"], note["generation"]].append(note["digest"])
    shared = {key: digests for key, digests in found.items() if len(digests) > 1}
    differing = [key for key, digests in shared.items() if len(set(digests)) > 1]
    assert not differing, f"states differ after (step, generation) {differing[:5]}"
    return len(shared)


def ended(workers: ForkedWorkers, *nodes: str) -> None:
    for node in nodes:
        assert workers.wait(node, "exited", 120)["code"] == 0, (workers.folder / f"{node}.log").read_text()


@pytest.mark.parametrize(
    ("kind", "options", "members"),
    [
        pytest.param("sgd", (), "ab", marks=pytest.mark.nightly),  # as with DDP
        pytest.param("sgd", IN_PARTS, "ab", marks=pytest.mark.nightly),  # as with AdamW, which has more
        ("adamw", IN_PARTS, "ab"),
        ("odd", IN_PARTS, "ab"),
        ("ddp", (), "ab"),
        ("odd", IN_PARTS, "a"),  # its gradients come by a broadcast
        ("ddp", IN_PARTS, "a"),
    ],
)
def test_a_newcomer_has_the_members_state_to_the_bit(
    workers: ForkedWorkers, kind: str, options: tuple[str, ...], members: str
) -> None:
    start(workers, kind, *members, "c", options=options)
    workers.regroup(*members)
    advance(workers, 5)
    workers.regroup(*members, "c")
    caught_up = workers.wait("c", "caught_up")
    assert caught_up["bytes"] > 4 * 1024 * 1024
    ended(workers, *members, "c")
    audit(workers.folder, SAMPLES)
    assert same_states(workers) > 20
    assert not any("at once" in p.read_text() for p in workers.folder.glob("*.log")), "nothing was sent twice"
    new = len(members)
    all_of_them = [n for n in notes(workers) if n["size"] == new + 1]
    assert {n["rank"] for n in all_of_them} == {*range(new + 1)}, "the newcomer took its share in the end"
    joined = workers.wait("c", "joined")
    assert caught_up["step"] >= joined["step"] + (8 if options else 1), "so few bytes travel in a step"
    if kind == "odd":
        first = min((n for n in all_of_them if n["rank"] == new), key=lambda n: n["step"])
        # a member counts the passes of a step twice that is taken again
        assert abs(first["seen"] - first["step"]) <= 5, "statistics come along"


def test_newcomers_pass_on_what_they_receive(workers: ForkedWorkers) -> None:
    start(workers, "sgd", "a", "b", "c", options=IN_PARTS)
    workers.regroup("a")
    advance(workers, 5)
    workers.regroup("a", "b", "c")
    for newcomer in "bc":
        assert workers.wait(newcomer, "caught_up")["bytes"] > 4 * 1024 * 1024
    ended(workers, "a", "b", "c")
    audit(workers.folder, SAMPLES)
    assert same_states(workers) > 20
    assert not any("at once" in p.read_text() for p in workers.folder.glob("*.log")), "nothing was sent twice"


def shadowed(workers: ForkedWorkers, *members: str, shadow: str) -> None:
    """Regroup, and wait until `shadow` has got a part of the state, but not all."""
    workers.regroup(*members, shadow)
    workers.wait(shadow, "joined", where=lambda m: m["generation"] == workers.generation)
    advance(workers, 8)
    assert not any(m["type"] == "caught_up" for m in workers.said[shadow])


def test_a_source_that_dies_is_replaced_and_what_came_from_it_stays(workers: ForkedWorkers) -> None:
    start(workers, "sgd", "a", "b", "c", options=SLOW)
    workers.regroup("a", "b")
    advance(workers, 3)
    shadowed(workers, "a", "b", shadow="c")
    workers.kill("a")
    workers.wait("b", "broken")
    workers.regroup("b", "c")
    caught_up = workers.wait("c", "caught_up")
    assert caught_up["bytes"] < STATE, "it went on where the first source had got to"
    ended(workers, "b", "c")
    audit(workers.folder, SAMPLES)
    assert same_states(workers) > 20


def test_shadows_that_leave_or_die_cost_the_members_nothing(workers: ForkedWorkers) -> None:
    start(workers, "adamw", "a", "b", "c", "d", options=SLOW)
    workers.regroup("a", "b")
    advance(workers, 3)
    shadowed(workers, "a", "b", shadow="c")
    workers.regroup("a", "b", leaving=["c"])
    ended(workers, "c")
    shadowed(workers, "a", "b", shadow="d")
    workers.kill("d")
    workers.wait("a", "broken")
    workers.regroup("a", "b")
    ended(workers, "a", "b")
    audit(workers.folder, SAMPLES)
    same_states(workers)
    assert all(note["size"] < 3 for note in notes(workers))


@pytest.mark.parametrize("every_s", [0.05, 1e9], ids=["checkpoint", "none"])
def test_only_shadows_left_have_no_state(tmp_path: Path, every_s: float) -> None:
    with ForkedWorkers(tmp_path, samples=SAMPLES, checkpoint_every_s=every_s) as workers:
        start(workers, "sgd", "a", "b", "c", options=SLOW)
        workers.regroup("a", "b")
        advance(workers, 3)
        shadowed(workers, "a", "b", shadow="c")
        if every_s < 1:
            until(lambda: any(tmp_path.glob("checkpoints/*.pt")), "a checkpoint")
        workers.kill("a")
        workers.kill("b")
        workers.wait("c", "broken")
        workers.regroup("c")
        if every_s < 1:
            joined = workers.wait("c", "joined", where=lambda m: m["generation"] == workers.generation)
            assert joined["step"] > 0
            ended(workers, "c")
            audit(tmp_path, SAMPLES)
        else:
            assert workers.wait("c", "exited")["code"] == -9, "half a state is no beginning"


def test_a_script_that_changes_parameters_by_itself_gets_one_broadcast(workers: ForkedWorkers) -> None:
    start(workers, "clamped", "a", "b", "c")
    workers.regroup("a", "b")
    advance(workers, 3)
    workers.regroup("a", "b", "c")
    workers.wait("c", "caught_up")
    ended(workers, "a", "b", "c")
    assert "handing over at once" in (workers.folder / "c.log").read_text()
    same_states(workers)
