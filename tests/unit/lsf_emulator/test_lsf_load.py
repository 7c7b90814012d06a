"""Loads of the emulated LSF's main queue, and how they are played in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsf.emulator import load, sites, virtual
from lsf.emulator.core.cluster import Cluster
from lsf.emulator.core.model import State
from tests.support.lsf_clusters import site, sound, whole

SWF = """\
; MaxProcs: 64
2 30 10 100 16 -1 -1 16 600 -1 1 1 1 -1 -1 -1 -1 -1
1 10  0 50   4 -1 -1  4  60 -1 1 1 1 -1 -1 -1 -1 -1
4 90 99 60 64 -1 -1 64  -1 -1 1 1 1 -1 -1 -1 -1 -1
"""


def test_jobs_of_a_log_keep_their_share_of_the_machine_and_come_at_any_speed(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    small = sites.small(8, launch=1)
    coming = load.of_swf(path, small, cores_per_node=4, count=3)
    shown = [
        (when, job.demand.slots // 42, job.duration_s, job.limit_s, job.name, job.demand.launch)
        for when, job in coming
    ]
    day = 86_400.0
    assert shown == [
        (0, 1, 50, 60, "1", True),
        (20, 2, 100, 600, "2", True),
        (80, 8, 60, day, "4", True),
    ]
    fast = list(load.at_speed(coming, 10.0))
    assert [(when, job.duration_s, job.limit_s) for when, job in fast[:2]] == [(0, 5, 6), (2, 10, 60)]


def test_generated_jobs_are_the_load_that_was_asked_for_and_the_same_for_a_seed() -> None:
    summit = sites.summit()
    jobs = load.generated(summit, 86_400.0, 0.9, 7)
    assert jobs == load.generated(summit, 86_400.0, 0.9, 7) != load.generated(summit, 86_400.0, 0.9, 8)
    assert [when for when, _ in jobs] == sorted(when for when, _ in jobs)
    work = sum((job.duration_s or 0) * job.demand.slots / 42 for _, job in jobs)
    assert work / (4608 * (86_400 + load.FULL_S)) == pytest.approx(0.9, abs=0.1)
    assert all(
        1 <= job.demand.slots // 42 <= 4608 and job.limit_s >= (job.duration_s or 0) for _, job in jobs
    )


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(0, 99), st.floats(0.3, 1.5))
def test_a_played_load_overcommits_nothing_and_wastes_nothing(hosts: int, seed: int, share: float) -> None:
    small = sites.small(hosts)
    hours = 6 * 3600.0
    jobs = load.generated(small, hours, share, seed)
    played = virtual.play(small, jobs, hours, each=sound)
    assert len(played.jobs) + played.left + played.refused <= len(jobs)
    assert 0 <= played.used <= 1 + 1e-9
    assert all(job.state is State.DONE and (job.start or 0) >= job.submitted for job in played.jobs)


def test_jobs_that_no_queue_takes_are_counted() -> None:
    cluster = Cluster(site(2))
    cluster.feed([(1.0, whole(3, 1, 1)), (2.0, whole(2, 1, 1))])
    cluster.advance(5.0)
    assert cluster.state.refused == 1
    assert [job.start for job in cluster.state.jobs.values()] == [2.0]


def test_time_that_is_used_is_summed_over_slots() -> None:
    played = virtual.play(site(2), [(0.0, whole(1, 50, 50)), (50.0, whole(2, 25, 25))], 100.0)
    assert (played.used, played.left, played.waits()) == (pytest.approx(0.5), 0, [0.0, 0.0])


def test_polls_see_every_moment_and_change_nothing() -> None:
    small = sites.small(4)
    jobs = load.generated(small, 3600.0, 0.9, 3)
    alone = virtual.play(small, jobs, 3600.0)
    seen: list[float] = []
    watcher = virtual.Watcher()

    def look(cluster: Cluster) -> None:
        seen.append(cluster.state.now)
        watcher(cluster)

    watched = virtual.play(small, jobs, 3600.0, poll=(60.0, look))
    assert seen == [60.0 * n for n in range(60)]
    assert [(job.id, job.start, job.end) for job in watched.jobs] == [
        (job.id, job.start, job.end) for job in alone.jobs
    ]
    assert watched.used == pytest.approx(alone.used)
