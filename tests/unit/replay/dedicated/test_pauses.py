"""What a change of workers costs a replayed job: a restart, or a pause while those that stay train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.performance.goodput import gain
from bftrainer.replay.dedicated.cluster import ClusterShape, figures_of, run
from bftrainer.replay.dedicated.job import Pauses, Profile, RunningJob, kept
from bftrainer.replay.dedicated.policies import policy_of
from bftrainer.replay.dedicated.workload import read_jobs
from tests.support.measured_programs import SYSTEM, write_jobs, write_program

RESCALES = Pauses(init_s=20.0, stall_up_s=2.0, stall_down_s=1.0, rescales=True)
ONE = float(gain(64.0, 16, 64)) / float(SYSTEM.iteration_time(1, 1, 32) + SYSTEM.gradient_time(32))
"""Steps of m0 per second with a batch of 64 on one worker, in two parts."""
TWO, FOUR = (float(gain(64.0, 16, 64)) / float(SYSTEM.iteration_time(1, k, 64 // k)) for k in (2, 4))


@pytest.fixture
def job(tmp_path: Path) -> RunningJob:
    """A job of one long epoch after another, with a batch of 64."""
    write_program(tmp_path / "profiles" / "p", epochs=50)
    jobs = read_jobs(write_jobs(tmp_path / "jobs.csv", [("a", 0, "p", 1, 64)]), tmp_path / "profiles")
    return RunningJob(jobs[0], Profile(), batch=64)


def steps(job: RunningJob, seconds: float) -> float:
    """The steps of m0 that it takes in the seconds to come; less than an epoch, whose ends are rounded."""
    before = job.progress
    job.advance(0.0, seconds)
    return job.progress - before


@pytest.mark.parametrize(
    ("before", "after", "stay"),
    [
        ((), (0, 0), ()),
        ((0, 0), (0, 0, 0, 1), (0, 0)),
        ((0, 0, 1), (0, 1, 1), (0, 1)),
        ((0, 0), (1, 1), ()),
        ((0, 0, 1, 1), (1,), (1,)),
        ((0,), (), ()),
    ],
)
def test_workers_stay_where_their_node_is_kept(
    before: tuple[int, ...], after: tuple[int, ...], stay: tuple[int, ...]
) -> None:
    assert kept(before, after) == stay


def test_a_start_waits_until_workers_are_ready(job: RunningJob) -> None:
    job.place((0,), RESCALES)
    assert steps(job, 30) == pytest.approx((30 - 22) * ONE)


def test_those_that_stay_train_on_until_the_new_ones_join(job: RunningJob) -> None:
    job.place((0,), RESCALES)
    job.advance(0.0, 22)
    job.place((0, 0), RESCALES)
    assert steps(job, 15) == pytest.approx(15 * ONE), "in two parts as well"
    assert steps(job, 10) == pytest.approx(5 * ONE + (10 - 5 - 2) * TWO)
    assert job.gpu_s == 22 + 2 * 25, "a GPU is held while its worker starts"


def test_who_leaves_is_missing_at_once(job: RunningJob) -> None:
    job.place((0, 0, 0, 0), RESCALES)
    job.advance(0.0, 22)
    job.place((0, 0), RESCALES)
    assert steps(job, 10) == pytest.approx((10 - 1) * TWO)


def test_some_leave_while_others_join(job: RunningJob) -> None:
    job.place((0, 1), RESCALES)
    job.advance(0.0, 22)
    job.place((0, 0, 0, 0), RESCALES)
    assert steps(job, 25) == pytest.approx((20 - 1) * ONE + (5 - 2) * FOUR)


def test_who_moves_as_a_whole_begins_anew(job: RunningJob) -> None:
    job.place((0, 0), RESCALES)
    job.advance(0.0, 22)
    job.place((1, 1), RESCALES)
    assert steps(job, 25) == pytest.approx((25 - 22) * TWO)


def test_a_change_before_the_first_step_does_not_shorten_the_start(job: RunningJob) -> None:
    job.place((0,), RESCALES)
    assert steps(job, 10) == 0
    job.place((0, 0), RESCALES)
    assert steps(job, 21) == pytest.approx((20 - 12) * ONE), "the second joins after 20 s and pauses for 2"


def test_as_published_every_change_is_a_restart(job: RunningJob) -> None:
    job.place((0,))
    job.advance(0.0, 30)
    job.place((0, 0))
    assert steps(job, 40) == pytest.approx(10 * TWO)
    assert (RESCALES.change_s, Pauses().change_s) == (5.5, 30.0)


def test_shorter_pauses_and_intervals_end_jobs_sooner(tmp_path: Path) -> None:
    write_program(tmp_path / "profiles" / "p", epochs=40)
    rows = [(f"j{i}", 30 * i, "p", 1, 16) for i in range(6)]
    jobs = read_jobs(write_jobs(tmp_path / "jobs.csv", rows), tmp_path / "profiles")
    cluster, means = ClusterShape(2, 4), []
    for pauses, tick_s in ((Pauses(), 60.0), (RESCALES, 60.0), (RESCALES, 10.0)):
        found = run(
            jobs, cluster, policy_of("goodput", change_s=pauses.change_s), pauses=pauses, tick_s=tick_s
        )
        means.append(figures_of(found, cluster)["completion_s"]["mean"])
    assert means == sorted(means, reverse=True)
