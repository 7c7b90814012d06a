"""What an admin is shown of main jobs' waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.daemon.answers.views.impact import DAY_S, WORST, checked, impact_view, promised, why
from bftrainer.model.main_jobs import Accounted, Affected, MainStart, quantile, waits
from bftrainer.nodes.headroom.promise import Kept
from bftrainer.settings.headroom import Promise
from bftrainer.testing.store import START

starts = st.lists(
    st.builds(
        MainStart,
        time=st.floats(0, 10 * DAY_S),
        job=st.just("1"),
        nodes=st.integers(1, 5),
        wait_s=st.floats(0, 1000),
        affected=st.sampled_from(list(Affected)),
        given=st.integers(0, 5),
        vacate_s=st.none() | st.floats(0, 10),
        requeued=st.integers(0, 2),
    ),
    max_size=40,
)


@given(starts)
def test_every_start_counts_once(some: list[MainStart]) -> None:
    found = impact_view(some, 7.0, 10 * DAY_S)
    assert found["affected"]["count"] + found["unaffected"]["count"] == found["all"]["count"]
    assert found["all"]["count"] + found["in_vain"] == len(some)
    assert found["taken"] + sum(s.affected is Affected.CLAIMED for s in some) == found["affected"]["count"]
    days = found["per_day"]
    assert sum(day["affected"]["count"] for day in days) == found["affected"]["count"]
    assert sum(day["unaffected"]["count"] for day in days) == found["unaffected"]["count"]
    waited = [worst["wait_s"] for worst in found["worst"]]
    assert waited == sorted(waited, reverse=True) and len(waited) <= WORST
    if found["affected"]["count"] == 0 and found["unaffected"]["count"]:
        assert set(found["more_s"].values()) == {0.0}, "nothing of ours, no difference"


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_quantile_is_the_smallest_value_that_enough_do_not_exceed(
    values: list[float], share: float
) -> None:
    values.sort()
    found = quantile(values, share)
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert sum(value < found for value in values) < share * len(values) + 1e-6


def test_the_difference_is_of_all_jobs_against_those_with_none_of_ours_in_the_way() -> None:
    quick = [replace(START, affected=Affected.NO, given=0, wait_s=0.5)] * 9
    found = impact_view([*quick, replace(START, wait_s=4.0)], 7.0, 100.0)
    assert found["more_s"] == {"median": 0.0, "p90": 0.0, "p99": 3.5}
    assert (found["given"], found["nodes"], found["requeued"]) == (1, 2, 1)
    assert found["vacate"]["most_s"] == 0.125
    assert waits(()).count == 0


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (
            START,
            "seen after 0.2 s; pilots of 2 nodes ended 0.1 s later; then 0.4 s to be cleared and started",
        ),
        (
            replace(START, affected=Affected.TAKEN, seen_s=None, vacate_s=None),
            "the scheduler took nodes of ours",
        ),
        (
            replace(START, affected=Affected.IN_VAIN, seen_s=None, vacate_s=None),
            "another job got them, or it waits for more",
        ),
    ],
)
def test_a_long_wait_has_a_reason(start: MainStart, said: str) -> None:
    assert why(start) == said


def test_the_accounting_tells_how_much_the_daemon_has_seen_or_that_nobody_does() -> None:
    starts = [START, replace(START, time=1.0), replace(START, affected=Affected.IN_VAIN)]
    assert checked(starts, Accounted(started=4), 3.0) == (
        "The daemon has seen 1 of the 4 main jobs that have started since 01 Jan 00:00 UTC."
    )
    said = checked(starts, Accounted(why="sacct: accounting storage is disabled"), 3.0)
    assert said == (
        "Nothing tells how many starts the daemon has not seen: sacct: accounting storage is disabled."
    )


def test_how_the_promise_stands_is_said_where_there_is_one() -> None:
    promise = Promise(median_s=0.2, p99_s=1.0)
    assert promised(None, Kept()) == []
    assert promised(promise, Kept()) == ["The promise to main jobs (median 0.2 s, p99 1 s) is kept."]
    assert promised(promise, Kept(level=2, why="2 of the last 9 waited")) == [
        "The promise to main jobs (median 0.2 s, p99 1 s) was at risk: 2 of the last 9 waited. "
        "10% of what is idle or ours is left for it."
    ]
