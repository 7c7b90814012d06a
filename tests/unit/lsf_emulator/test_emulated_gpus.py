"""GPUs of the emulated LSF: shown in the form of real ones, asked for, and given to tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lsf.emulator import sites
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import Host, State
from lsf.emulator.processes import Processes
from lsf.emulator.tasks import devices
from tests.support.lsf_clusters import sound
from tests.support.lsf_questions import Desk

BATCH = """\
HOST_NAME            GPU_ID                MODEL     MUSED      MRSV  NJOBS    RUN   SUSP    RSV
h1                        0  TeslaV100_SXM2_16GB        0M        0M      0      0      0      0
                          1  TeslaV100_SXM2_16GB        0M        0M      0      0      0      0
"""
LIM = """\
HOST_NAME   gpu_id       gpu_model   gpu_driver   gpu_factor      numa_id
h1               0 TeslaV100_SXM2_       396.37          7.0            0
                 1 TeslaV100_SXM2_       396.37          7.0            0
"""


def test_gpus_are_shown_as_real_lsf_shows_them() -> None:
    desk = Desk(sites.small(1, gpus=2, launch=1))
    assert desk.ask("bhosts", "-gpu", "-w").out == BATCH
    assert desk.ask("lshosts", "-gpu").out == LIM
    assert "TeslaV100_SXM2_16GB" in desk.ask("lshosts", "-gpu", "-w").out
    assert desk.ask("bhosts", "-gpu", "nowhere").code == 255


def test_jobs_have_the_gpus_that_they_ask_for() -> None:
    desk = Desk(sites.small(1, gpus=2))
    desk.submit("-n", "42", "-gpu", "num=1:j_exclusive=yes", "sleep", "9")
    desk.cluster.advance(desk.now)
    rows = [line.split()[-4:] for line in desk.ask("bhosts", "-gpu", "-w").out.splitlines()[1:]]
    assert rows == [["1", "1", "0", "0"], ["0", "0", "0", "0"]]
    assert "Cannot satisfy" in desk.ask("bsub", "-n", "1", "-gpu", "num=3", "sleep", "9").err
    assert "Error in the GPU" in desk.ask("bsub", "-n", "1", "-gpu", "six", "sleep", "9").err


def submit(desk: Desk, slots: int, gpus: int, *more: str) -> Job:
    job = desk.submit("-n", str(slots), "-gpu", f"num={gpus}:j_exclusive=yes", *more, "sleep", "9")
    desk.cluster.advance(desk.now)
    sound(desk.cluster)
    return job


def in_use(desk: Desk) -> list[str]:
    """RUN of each GPU."""
    return [line.split()[-3] for line in desk.ask("bhosts", "-gpu", "-w").out.splitlines()[1:]]


def test_jobs_of_one_host_have_different_gpus_and_wait_for_those_of_others(tmp_path: Path) -> None:
    desk = Desk(sites.small(1, gpus=3))
    first, second = submit(desk, 1, 1), submit(desk, 1, 1)
    third, fourth = submit(desk, 1, 2), submit(desk, 1, 1)
    assert [job.devices for job in (first, second, third, fourth)] == [{0: (0,)}, {0: (1,)}, {}, {0: (2,)}]
    assert third.state is State.PEND, "slots are there, and one GPU was: a job that ends in time has it"
    assert in_use(desk) == ["1", "1", "1"]
    named = Processes(tmp_path, lambda *_: None)._environment(second, desk.cluster.state)
    assert named["CUDA_VISIBLE_DEVICES"] == "1"
    desk.ask("bkill", "-s", "KILL", str(second.id))
    for job in (second, fourth):
        desk.cluster.exited(job, job.run, 137, desk.now)
    sound(desk.cluster)
    assert third.devices == {0: (1, 2)}


@pytest.mark.parametrize(
    ("main", "again", "preempted"), [(1, True, True), (1, False, False), (0, True, False)]
)
def test_only_gpu_jobs_preempt_gpu_jobs_and_only_those_that_may_start_again(
    main: int, again: bool, preempted: bool
) -> None:
    desk = Desk(sites.small(1, gpus=2))
    held = submit(desk, 1, 2, "-q", "killable", "-r" if again else "-rn")
    words = ("-gpu", f"num={main}") if main else ("-x",)
    job = desk.submit("-q", "batch", *words, "sleep", "9")
    desk.cluster.advance(desk.now)
    assert (held.told, job.state) == (preempted, State.PEND)


def test_gpus_that_are_reserved_are_left_to_the_job_that_waits() -> None:
    desk = Desk(replace(sites.small(1, gpus=2, preempt=None), cycle_s=0.0))
    running = submit(desk, 1, 1, "-W", "1")
    waits = submit(desk, 1, 2, "-W", "9")
    late, early = submit(desk, 1, 1, "-W", "9"), submit(desk, 1, 1, "-W", "1")
    shown = [job.state for job in (running, waits, late, early)]
    assert shown == [State.RUN, State.PEND, State.PEND, State.RUN]


def test_each_resource_set_has_gpus_of_its_own() -> None:
    assert devices({"-g": "6"}, ["a"]) == [{"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5"}]
    names = [
        one["CUDA_VISIBLE_DEVICES"] for one in devices({"-g": "1", "-a": "2"}, ["a", "a", "a", "a", "b", "b"])
    ]
    assert names == ["0", "0", "1", "1", "0", "0"]
    assert devices({}, ["a"]) == [{}]


def test_summit_has_six_and_launch_hosts_none() -> None:
    desk = Desk(sites.summit(2))
    assert desk.ask("bhosts", "-gpu", "-w", "-R", "select[CN]").out.count("TeslaV100") == 12
    assert Host(name="x").gpus == 6
