"""GPUs of LSF's hosts: what the commands print, what pilots ask for, what the check says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.schedulers.lsf.check.findings import gpu_findings, preempted_gpus
from bftrainer.schedulers.lsf.make import TEMPLATES
from bftrainer.schedulers.lsf.pilot import command
from bftrainer.schedulers.lsf.rows import Gpus
from bftrainer.schedulers.lsf.text.gpus_text import gpus
from bftrainer.schedulers.lsf.view import Shown, interpret
from bftrainer.schedulers.shared import pilot_job
from bftrainer.schedulers.shared.pilot_job import Template
from bftrainer.schedulers.shared.text import TextError
from tests.unit.schedulers.test_lsf_pilot import JOB, PILOT, options
from tests.unit.schedulers.test_lsf_view import NOW, OURS, host

BATCH = """\
HOST_NAME            GPU_ID                MODEL     MUSED      MRSV  NJOBS    RUN   SUSP    RSV
n-1                       0  TeslaV100_PCIE_32GB      273M        0M      0      0      0      0
                          1  TeslaV100_PCIE_32GB     14.5G        0M      1      1      0      0
n-2.cluster               0   NVIDIAH10080GBHBM3        2G        0G      1      1      0      0
"""
"""As LSF 10.1 prints it: the name of the host in the first of its lines only."""
LIM = """\
HOST_NAME   gpu_id       gpu_model   gpu_driver   gpu_factor      numa_id
power9           0 TeslaV100_PCIE_       396.37          7.0            8
"""
VENDORS = """\
HOST_NAME  gpu_id gpu_model        gpu_driver  gpu_factor numa_id vendor
c                0 Vega10_RadeonIn  5.6.12       -         0          AMD
                 1 Vega10_RadeonIn  5.6.12       -         0          AMD
"""


def test_gpus_are_counted_by_host_in_each_form() -> None:
    assert gpus(BATCH) == {
        "n-1": Gpus(2, "TeslaV100_PCIE_32GB"),
        "n-2.cluster": Gpus(1, "NVIDIAH10080GBHBM3"),
    }
    assert gpus(LIM) == {"power9": Gpus(1, "TeslaV100_PCIE_")}
    assert gpus(VENDORS) == {"c": Gpus(2, "Vega10_RadeonIn")}


def test_a_gpu_in_slices_counts_once_and_a_host_without_gpus_not_at_all() -> None:
    head = BATCH.split("\n", 1)[0]
    sliced = f"{head}\na  0 A100 0M 0M 0 0 0 0\n   0 A100 0M 0M 0 0 0 0\n   1 A100 0M 0M 0 0 0 0\nb  -  -\n"
    assert gpus(sliced) == {"a": Gpus(2, "A100")}


@pytest.mark.parametrize("text", ["", "bhosts: illegal option -- gpu\n", "HOST_NAME STATUS\nh ok\n"])
def test_an_answer_of_another_form_tells_of_no_gpus(text: str) -> None:
    with pytest.raises(TextError):
        gpus(text)


@given(st.text())
def test_whatever_stands_below_the_titles_is_no_error(text: str) -> None:
    assert all(0 < found.count <= 1000 for found in gpus(f"HOST_NAME GPU_ID MODEL\n{text}").values())


def test_a_host_is_shown_with_its_gpus() -> None:
    rows = {row.name: row for row in (host("a"), host("b"))}
    shown = interpret(Shown(rows, (), gpus={"a": Gpus(6, "V100")}), OURS, now=NOW).snapshot
    assert [(node.gpus, node.gres) for node in shown.nodes] == [(6, "gpu:V100:6"), (0, "")]
    assert [node.types for node in shown.nodes] == [("V100",), ()]


def test_pilots_of_plain_lsf_ask_for_all_gpus_of_their_host() -> None:
    assert options(command(JOB, PILOT, 42, None, gpus=4))["-gpu"] == "num=4:j_exclusive=yes"
    assert "-gpu" not in command(JOB, PILOT, 42, None)
    own = replace(JOB, options=("-gpu", "num=1"))
    assert command(own, PILOT, 42, None, gpus=4).count("-gpu") == 1


@pytest.mark.parametrize("mode", ["easy", "expert"])
def test_pilots_of_summit_get_all_gpus_in_one_resource_set(mode: str) -> None:
    job = replace(JOB, submission=mode, template=Template(pilot_job.find(TEMPLATES[mode])))
    assert "-gpu" not in command(job, PILOT, 42, None, gpus=6)
    assert "jsrun -n1 -r1 -a1 -c42 -g6 -bnone" in job.script(PILOT, slots="42", gpus="6")


def test_the_check_tells_gpus_and_hosts_that_differ() -> None:
    same = gpu_findings({"a": Gpus(6), "b": Gpus(6)}, ["a", "b"], "lsf_gpus")
    assert "2 with gpu:6" in same[0].found and len(same) == 1
    mixed = gpu_findings({"a": Gpus(4, "V100")}, ["a", "b"], "bhosts")
    assert "1 with gpu:V100:4, 1 with none" in mixed[0].found and "differ" in mixed[1].found
    assert "set lsf_gpus" in gpu_findings({}, ["a"], "bhosts")[0].found


def test_the_check_says_that_lsf_does_not_preempt_pilots_with_gpus() -> None:
    (found,) = preempted_gpus("preempt", asks=True)
    assert "only GPU jobs preempt GPU jobs" in found.found and "pilot_max_s" in found.remedy
    assert preempted_gpus("window", asks=True) == preempted_gpus("preempt", asks=False) == []
