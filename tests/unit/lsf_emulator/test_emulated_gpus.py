"""GPUs of the emulated LSF: shown in the form of real ones, asked for, and given to tasks."""

from __future__ import annotations

from lsf.emulator import sites
from lsf.emulator.core.model import Host
from lsf.emulator.tasks import devices
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
