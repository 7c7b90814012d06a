"""What workers cannot cause, however often they say something: events, entries and figures are bounded."""

from __future__ import annotations

import pytest

from bftrainer.launch.deadlines import TimeLimits
from bftrainer.launch.job import MOST_KINDS, WorkerLimits
from bftrainer.launch.native.launcher import (
    BUSY_BURST,
    BUSY_PER_S,
    MAX_ENTRIES,
    MAX_ENTRIES_BYTES,
    MOST_WORKERS,
    RESYNC_MOST_S,
)
from bftrainer.launch.reports import Reports
from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.events import Measured, Resync
from tests.support.native_stage import NativeStage


@pytest.fixture
def world() -> NativeStage:
    found = NativeStage(TimeLimits(now=lambda: found.now))
    found.start(1, "n", "m")
    for node in ("n", "m"):
        found.said(node, "ready")
    publish(found, 2)
    return found


def publish(world: NativeStage, generation: int) -> None:
    world.launcher.perform(Regroup(trainer=1, generation=generation, members=("n", "m"), leaving=()))
    world.events.clear()
    world.sent.clear()


def test_a_member_joins_a_membership_once_and_none_that_is_not_published(world: NativeStage) -> None:
    for node in ("n", "m"):
        world.joined(node, 2, survivor=False, step=0)
    publish(world, 3)
    world.launcher.known[1].lost = True
    for generation in (3, 3, 3, 2, 4, 10**9, 3):
        world.joined("n", generation, survivor=True, step=5)
    assert sum(isinstance(event, Measured) for event in world.events) == 1
    assert world.launcher.known[1].confirmed == 3


def test_of_memberships_that_no_worker_joins_few_are_remembered(world: NativeStage) -> None:
    for generation in range(3, 500):
        publish(world, generation)
    assert len(world.launcher.known[1].kinds) <= MOST_KINDS + 1
    world.joined("n", 499, survivor=False, step=0)
    assert world.launcher.known[1].confirmed == 499


def test_a_member_sets_a_bounded_number_of_entries_in_a_rendezvous(world: NativeStage) -> None:
    def relayed(count: int, value: str) -> int:
        generation = world.launcher.known[1].published
        for _ in range(count):
            world.said("n", "kv", generation=generation, key="k", value=value)
        return sum(node == "m" for node, _ in world.sent)

    assert relayed(4 * MAX_ENTRIES, "v") == MAX_ENTRIES
    publish(world, 3)
    assert relayed(10, "v" * (MAX_ENTRIES_BYTES // 4 - 1)) == 4, "each generation has its own"


def test_an_agent_that_claims_many_workers_has_few_more_entries_for_it(world: NativeStage) -> None:
    world.launcher.known[1].workers["n"].workers = 1024
    for _ in range(2 * MOST_WORKERS * MAX_ENTRIES):
        world.said("n", "kv", generation=2, key="k", value="v")
    assert sum(node == "m" for node, _ in world.sent) == MOST_WORKERS * MAX_ENTRIES


def test_a_member_tells_the_others_so_often_that_it_is_busy_and_no_more(world: NativeStage) -> None:
    def told(node: str, count: int) -> int:
        world.sent.clear()
        for turn in range(count):
            world.said(node, "busy", generation=2, seconds=300.0 * (turn % 2))
        return sum(message["type"] == "busy" for _, message in world.sent)

    assert [told("n", 4 * BUSY_BURST), told("n", 10)] == [BUSY_BURST, 0]
    assert told("m", 10) == 10, "each has its own"
    world.now += 4 / BUSY_PER_S
    assert told("n", 10) == 4


def test_a_group_that_breaks_again_and_again_is_published_ever_later(world: NativeStage) -> None:
    def wait_s(generation: int) -> float:
        publish(world, generation)
        for _ in range(3):
            world.said("n", "broken", generation=generation, reason="again")
        (event,) = world.events
        assert isinstance(event, Resync)
        return event.time - world.now

    waits = [wait_s(generation) for generation in range(3, 15)]
    assert waits[:6] == [1.0, 1.0, 1.0, 2.0, 4.0, 8.0] and waits[-1] == RESYNC_MOST_S
    world.now += 1000.0
    assert wait_s(15) == 1.0, "it has held for long"


def test_of_too_many_names_of_figures_the_first_stay_and_that_is_told_once(world: NativeStage) -> None:
    told: list[tuple[str, str, float]] = []
    bounds = WorkerLimits(metrics=10, hit=lambda *hit: told.append(hit))
    world.launcher._reports = Reports(world.events.append, world, lambda: world.now, bounds)
    at = {"generation": 2, "samples": 1, "epoch": 0, "size": 1}
    for step in range(100):
        figures = {"loss": float(step), f"acc_{step}": 1.0}
        world.said("n", "progress", step=step, rate=None, metrics=figures, **at)
    assert list(world.progress[-1].metrics) == ["loss", *(f"acc_{n}" for n in range(9))]
    assert world.progress[-1].metrics["loss"] == 99.0, "of those, the latest value"
    assert told == [("max_metrics", "", 10)]


def test_one_report_with_too_many_names_is_cut_as_well(world: NativeStage) -> None:
    at = {"generation": 2, "samples": 1, "epoch": 0, "size": 1}
    world.said("n", "metrics", step=1, metrics={f"m{n}": 1.0 for n in range(500)}, **at)
    assert len(world.progress[-1].metrics) == 100


def test_a_worker_that_kills_itself_again_and_again_is_started_ever_later(world: NativeStage) -> None:
    def restarted(node: str, generation: int, code: int = -9) -> float:
        started = world.launcher.known[1].workers[node].generation
        world.said(node, "exited", started, code=code, phase="starting", reason="", last={})
        world.sent.clear()
        world.launcher.perform(StartWorker(trainer=1, generation=generation, node=node))
        ((_, order),) = [(n, m) for n, m in world.sent if m["type"] == "start"]
        delay: float = order["delay_s"]
        return delay

    assert [restarted("n", generation) for generation in range(3, 10)] == [0, 0, 1, 2, 4, 8, 16]
    assert restarted("m", 10) == 0.0, "of another node"
    world.now += 100.0
    assert restarted("n", 11) == 0.0
