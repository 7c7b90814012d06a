"""The promise to main jobs: where it is at risk less is harvested, step by step, and more again slowly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.events import HeadroomChanged
from bftrainer.model.main_jobs import Affected, MainStart
from bftrainer.nodes.headroom.promise import (
    CALM_S,
    DWELL_S,
    LEVELS,
    MOST_CALM_S,
    RECENT,
    Kept,
    at_risk,
    judged,
)
from bftrainer.settings.headroom import Promise
from tests.support.nodes_world import World, run, settings_in

PROMISE = Promise(median_s=0.2, p99_s=1.0)
TOP = len(LEVELS) - 1


def started(wait_s: float, affected: Affected = Affected.NO) -> MainStart:
    return MainStart(time=0.0, job="1", nodes=1, wait_s=wait_s, affected=affected)


USUAL = [started(0.5)] * 20
SLOW = [started(9.0, Affected.CLAIMED)] * 3
some = st.lists(st.builds(started, st.floats(0, 20), st.sampled_from(list(Affected))), max_size=10)


def test_a_single_job_in_a_hundred_may_wait_longer_and_two_may_not() -> None:
    kept = judged(Kept(), [*USUAL, SLOW[0]], PROMISE, 0.0)
    assert kept.level == 0
    kept = judged(kept, SLOW[:1], PROMISE, 1.0)
    assert kept.level == 1
    assert kept.why == (
        "2 of the last 22 main jobs waited more than 1.50 s, and nodes of ours were in the way of 2 of them"
    )


def test_what_all_wait_is_the_schedulers() -> None:
    slow_for_all = [started(9.0), started(9.0, Affected.TAKEN)] * 30
    assert judged(Kept(), slow_for_all, PROMISE, 0.0).level == 0


def test_the_median_counts_too() -> None:
    late = [started(0.8, Affected.CLAIMED)] * 30
    kept = judged(Kept(), [*USUAL, *late], PROMISE, 0.0)
    assert kept.level == 1 and "30 of the last 50 main jobs waited more than 0.70 s" in kept.why


def test_each_level_gets_time_to_show_an_effect_and_a_relapse_doubles_the_calm() -> None:
    kept = judged(Kept(), [*USUAL, *SLOW], PROMISE, 0.0)
    assert judged(kept, SLOW, PROMISE, DWELL_S - 1).level == 1
    kept = judged(kept, SLOW, PROMISE, DWELL_S)
    assert kept.level == 2
    assert judged(kept, (), PROMISE, DWELL_S + CALM_S - 1).level == 2
    kept = judged(kept, (), PROMISE, DWELL_S + CALM_S)
    assert kept.level == 1 and kept.calm_s == CALM_S
    kept = judged(kept, SLOW, PROMISE, 3 * DWELL_S + CALM_S)
    assert kept.level == 2 and kept.calm_s == 2 * CALM_S


def test_without_a_promise_nothing_is_left_for_it() -> None:
    raised = judged(Kept(), [*USUAL, *SLOW], PROMISE, 0.0)
    assert judged(raised, SLOW, None, 1.0) == Kept()


@given(st.lists(st.tuples(some, st.floats(0, 3000)), max_size=40))
def test_levels_change_one_by_one_and_never_quickly(polls: list[tuple[list[MainStart], float]]) -> None:
    kept, now = Kept(), 0.0
    for starts, later in polls:
        now += later
        before, kept = kept, judged(kept, starts, PROMISE, now)
        assert 0 <= kept.level <= TOP and len(kept.recent) <= RECENT
        assert CALM_S <= kept.calm_s <= MOST_CALM_S
        if kept.level > before.level:
            assert kept.level == before.level + 1
            assert before.level == 0 or now - before.since >= DWELL_S
            assert any(s.affected in (Affected.CLAIMED, Affected.TAKEN) for s in starts) or before.recent
            assert at_risk(kept, PROMISE) == "", "it is judged anew at each level"
        elif kept.level < before.level:
            assert kept.level == before.level - 1
            assert now - before.since >= before.calm_s


@given(some, st.integers(1, 30))
def test_jobs_with_no_node_of_ours_in_the_way_never_raise_it(starts: list[MainStart], times: int) -> None:
    kept = Kept()
    for at in range(times):
        alone = [replace(start, affected=Affected.NO) for start in starts]
        kept = judged(kept, alone, PROMISE, 100.0 * at)
    assert kept.level == 0


@given(some)
def test_it_ends_at_nothing_held_where_all_else_fails_and_comes_back_when_all_is_well(
    first: list[MainStart],
) -> None:
    kept, now = judged(Kept(), first, PROMISE, 0.0), 0.0
    for _ in range(60):
        now += DWELL_S
        kept = judged(kept, [*USUAL, *SLOW, *SLOW], PROMISE, now)
    assert kept.extra == 1.0
    for _ in range(TOP + 1):
        now += MOST_CALM_S
        kept = judged(kept, USUAL * 20, PROMISE, now)
    assert (kept.extra, kept.why) == (0.0, "")


@pytest.mark.parametrize(
    ("given", "promise"),
    [
        (None, None),
        ("none", None),
        ({"median_s": 0.5, "p99_s": 2}, Promise(median_s=0.5, p99_s=2.0)),
        ({}, PROMISE),
        ("median_s=0.5, p99_s=2", Promise(median_s=0.5, p99_s=2.0)),
    ],
)
def test_a_promise_is_a_mapping_or_its_text(tmp_path: Path, given: object, promise: Promise | None) -> None:
    assert settings_in(tmp_path, promise=given).promise == promise


@pytest.mark.parametrize(
    "given", ["0.2", "median=1", {"p50_s": 1}, {"median_s": -1}, "p99_s=x", "p99_s=1,p99_s=2"]
)
def test_what_is_no_promise_is_refused(tmp_path: Path, given: object) -> None:
    with pytest.raises(ValueError, match="promise"):
        settings_in(tmp_path, promise=given)


def test_the_daemon_leaves_more_and_tells_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 20, promise={"median_s": 0.2, "p99_s": 1}, headroom=0)
        await world.turn()
        assert len(world.pool) == 20
        told: list[object] = []
        world.nodes.reserve._emit = told.append
        snapshot = await world.scheduler.poll()
        world.nodes.reserve.learn([*USUAL, *SLOW], snapshot)
        (event,) = told
        assert isinstance(event, HeadroomChanged)
        assert event.share == 0.05 and "is at risk: 3 of the last 23 main jobs" in event.reason
        await world.turn()
        assert len(world.pool) == 19

    run(scenario)
