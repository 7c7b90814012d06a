"""Main jobs on an emulated LSF in virtual time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from benchmarks.testbeds.harvest import Outcome
from benchmarks.testbeds.impact.differences import compare
from benchmarks.testbeds.runs import waits
from bftrainer.nodes.release import Release
from lsf.impact.condition import Condition
from lsf.impact.virtual_time import VirtualLoop, run

CONDITION = Condition(mix="nodes", nodes=8, jobs=30, seconds=60, load=0.28, virtual=True)
DAY_S = 86_400.0


def outcome(*, with_trainers: bool, condition: Condition = CONDITION) -> Outcome:
    found = condition.played(condition.main_jobs(1), with_trainers=with_trainers, begin_after_s=0.3)
    assert found is not None
    assert all(run.state == "COMPLETED" for run in found[0].runs)
    return found[0]


def test_a_day_passes_at_once_and_the_monotonic_clock_shows_it() -> None:
    before = time.monotonic()

    async def story(loop: VirtualLoop) -> tuple[float, int]:
        began = time.monotonic()
        await asyncio.sleep(DAY_S)
        return time.monotonic() - began, await asyncio.to_thread(int, "7")

    assert run(story) == (DAY_S, 7)
    assert time.monotonic() - before < DAY_S


def test_the_same_load_is_played_the_same_and_real_conditions_are_not_played() -> None:
    assert outcome(with_trainers=False) == outcome(with_trainers=False)
    real = replace(CONDITION, virtual=False)
    assert real.played((), with_trainers=False, begin_after_s=0) is None
    assert real.name() != CONDITION.name()


def later_by(condition: Condition) -> float:
    """By how much longer main jobs wait with trainers, in the mean, in s."""
    without = outcome(with_trainers=False, condition=condition).runs
    with_ = outcome(with_trainers=True, condition=condition).runs
    pair = compare(1, {"without": without, "again": without, "with": with_})
    return pair.figures["mean"].later.value


def test_trainers_use_idle_hosts_and_main_jobs_hardly_wait_longer() -> None:
    found = outcome(with_trainers=True)
    assert found.held > 0.2
    assert len(waits(found.runs)) == CONDITION.jobs
    assert later_by(CONDITION) < 0.5


def test_without_vacating_on_sight_main_jobs_wait_longer_on_an_lsf_that_dispatches_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the measurement would show it. LSF then preempts each pilot itself, a dispatch cycle before it
    starts the job."""
    condition = replace(CONDITION, slow=True)
    seen = later_by(condition)

    async def none(self: Release, snapshot: object) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr(Release, "claimed", none)
    unseen = later_by(condition)
    assert unseen > seen + 0.5, (seen, unseen)
