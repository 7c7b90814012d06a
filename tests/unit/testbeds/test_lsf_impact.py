"""Main jobs on an emulated LSF: what they ask for, and what is made of LSF's jobs and of the daemon's log."""

from __future__ import annotations

import json

import lsf_impact
import pytest

from benchmarks.testbeds.impact.events import Job, What
from benchmarks.testbeds.impact.reasons import requeued
from lsf.impact.condition import Condition
from lsf.impact.machine import events_of
from lsf.impact.mix import KINDS, MIXES, SLOTS
from tests.support.main_runs import SUBMITTED, main_run

DAEMON = "2026-11-22 18:50:00,500 INFO vacated jobs=7 count=1 nodes=h2 seconds=0.4\n"


@pytest.mark.parametrize("mix", MIXES)
def test_each_kind_of_a_mix_comes_and_needs_the_nodes_that_it_asks_for(mix: str) -> None:
    jobs = Condition(mix=mix, nodes=8, jobs=90, seconds=180, load=0.35).main_jobs(3)
    assert {job.kind for job in jobs} == MIXES[mix].shares.keys() <= KINDS.keys()
    assert sum(job.size * job.run_s for job in jobs) == pytest.approx(0.35 * 8 * 180, rel=0.01)
    for job in jobs:
        (options,) = job.components
        given = dict(zip(options[::2], options[1::2], strict=False))
        if job.kind == "nodes":
            assert int(given["-nnodes"]) == job.size <= 8
        elif job.kind != "exclusive":
            assert int(given["-n"]) == pytest.approx(job.size * SLOTS)


def test_what_the_documentation_shows_can_be_taken() -> None:
    for condition in lsf_impact.DOCUMENTED:
        for seed in range(1, 6):
            assert len(condition.main_jobs(seed)) == condition.jobs
    assert len({condition.name() for condition in lsf_impact.DOCUMENTED}) == len(lsf_impact.DOCUMENTED) > 1


def lsf_job(number: int, queue: str, start: float, end: float, why: str = "") -> dict[str, object]:
    return {
        "id": number,
        "name": f"job{number}",
        "queue": queue,
        "start": start,
        "end": end,
        "hosts": ["h2"],
        "why": why,
    }


def test_starts_preemptions_and_what_was_vacated_are_told_of_the_job_that_they_were_for() -> None:
    pilot = lsf_job(5, "killable", SUBMITTED - 60, SUBMITTED + 1, "TERM_PREEMPT")
    ended = lsf_job(6, "killable", SUBMITTED - 60, SUBMITTED + 1)
    main = lsf_job(7, "batch", SUBMITTED + 1.5, SUBMITTED + 5)
    later = lsf_job(8, "batch", SUBMITTED + 6, SUBMITTED + 9)
    waits = {**lsf_job(9, "batch", 0, 0), "start": None, "hosts": []}
    found = events_of({"lsf": json.dumps([pilot, ended, main, later, waits]), "daemon": DAEMON})
    told = [(event.what, event.jobs) for event in sorted(found, key=lambda event: (event.what, event.time))]
    assert told == [
        (What.PREEMPTED, (Job(7),)),
        (What.STARTED, (Job(7),)),
        (What.STARTED, (Job(8),)),
        (What.VACATED, (Job(7),)),
    ]
    assert requeued(found, [main_run(7, 1.5, starts=2), main_run(8, 6.0)])[0].number == 7
