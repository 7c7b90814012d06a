"""The load of main jobs on a real Slurm, and what the probe sees of it."""

from __future__ import annotations

import pwd

import pytest

from benchmarks.testbeds.runs import waits
from benchmarks.testbeds.waiting import until
from benchmarks.testbeds.workload import MainJob
from slurm.testbed import Testbed, TestbedError
from slurm.testbed.load import Load

LONG_S = 240.0


def job(number: int, submit_s: float, size: int, run_s: float = 0.5) -> MainJob:
    return MainJob(number=number, submit_s=submit_s, size=size, run_s=run_s, limit_s=30)


def test_jobs_of_a_user_run_as_planned(bed: Testbed, users: tuple[str, str]) -> None:
    jobs = [job(1, 0, 4, 6.0), job(2, 3, 1), job(3, 3, 2)]  # so far apart that none overtakes the first
    with Load(bed, jobs, user=users[0]) as load:
        load.wait(LONG_S)
        runs = load.runs()
    assert [(run.number, run.size, run.state) for run in runs] == [
        (1, 4, "COMPLETED"),
        (2, 1, "COMPLETED"),
        (3, 2, "COMPLETED"),
    ]
    assert {(load.directory / f"{n}.0.ended").stat().st_uid for n in (1, 2, 3)} == {
        pwd.getpwnam(users[0]).pw_uid
    }
    first, second, third = runs
    assert first.started is not None
    assert first.ended is not None
    assert first.ended - first.started >= 6.0
    for behind in (second, third):  # the whole machine was taken
        assert behind.started is not None
        assert behind.started > first.ended
    assert len(waits(runs)) == 3


def test_what_is_left_is_cancelled(bed: Testbed) -> None:
    with Load(bed, [job(1, 0, 4, 1000), job(2, 0, 4, 1000), job(3, 1000, 1)]) as load:
        assert until(lambda: len(load.runs()) == 2, LONG_S)
        with pytest.raises(TestbedError, match="3 of 3 main jobs have not ended"):
            load.wait(0.1)
    assert until(lambda: all(run.state.startswith("CANCELLED") for run in load.runs()), LONG_S)
    bed.wait_idle()


def test_a_paused_controller_loses_and_doubles_no_job(bed: Testbed) -> None:
    bed.pause_controller()
    try:
        with Load(bed, [job(1, 0, 1), job(2, 0, 1)]) as load:
            # sbatch gives up only after 10 s: its submission waits in the paused controller's queue
            assert not until(lambda: bool(load.runs()), 12)
            bed.continue_controller()
            load.wait(LONG_S)
    finally:
        if not bed.answers():
            bed.continue_controller()
    names = bed.run(["squeue", "-h", "-t", "all", "-o", "%j"]).stdout.split()
    for run in load.runs():
        assert run.state == "COMPLETED"
        assert names.count(f"main-{run.number}-{load.directory.name}") == 1


def test_a_refused_job_is_told(bed: Testbed) -> None:
    with Load(bed, [job(1, 0, 0)]) as load, pytest.raises(TestbedError, match=r"exit 1: .*ode count"):
        load.wait(LONG_S)
