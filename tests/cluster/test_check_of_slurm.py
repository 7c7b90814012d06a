"""`bftrainer admin check` on a real Slurm: as it should be, and broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from slurm.testbed import Testbed
from tests.support.waiting import LONG_S


def checked(bed: Testbed, folder: Path, *, mode: str = "preempt") -> dict[str, tuple[str, str]]:
    environ = os.environ | {
        "SLURM_CONF": str(bed.plan.conf),
        "XDG_CONFIG_HOME": str(folder),
        "BFTRAINER_SITE_CONFIG": "/none",
        "BFTRAINER_STATE_DIR": str(folder / "state"),
        "BFTRAINER_SLURM_MODE": mode,
        "BFTRAINER_SLURM_PARTITION": "backfill",
        "BFTRAINER_SLURM_WATCH": "batch",
    }
    command = [sys.executable, "-m", "bftrainer", "admin", "check", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=LONG_S)
    found = {one["check"]: (one["level"], one["found"]) for one in json.loads(done.stdout)}
    assert done.returncode == any(level == "wrong" for level, _ in found.values()), done.stdout
    return found


def test_a_testbed_is_as_it_should_be_until_it_is_broken(bed: Testbed, tmp_path: Path) -> None:
    found = checked(bed, tmp_path)
    named = (
        "slurm",
        "slurm partition",
        "slurm preemption",
        "clock",
        "slurm PrivateData",
        "slurm reservations",
    )
    assert {name: found[name][0] for name in named} == dict.fromkeys(named, "ok"), found
    assert found["slurm ProctrackType"][0] == "warning" and "linuxproc" in found["slurm ProctrackType"][1]
    assert found["slurm KillWait"][1].startswith("5 s") and found["slurm UnkillableStepTimeout"][0] == "ok"
    try:
        bed.run(
            ["scontrol", "update", "PartitionName=backfill", "State=DOWN", "GraceTime=30", "PriorityTier=99"]
        )
        found = checked(bed, tmp_path)
        assert found["slurm partition"] == ("wrong", "backfill is DOWN: no pilot starts there")
        assert found["slurm preemption"][0] == "wrong"
        assert found["slurm GraceTime"][0] == "warning"
    finally:
        bed.run(["scontrol", "update", "PartitionName=backfill", "State=UP", "GraceTime=0", "PriorityTier=1"])


def test_a_slurm_that_does_not_answer_is_wrong(bed: Testbed, tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\n")
    environ = {"SLURM_CONF": str(conf)}
    command = [
        sys.executable,
        "-m",
        "bftrainer",
        "admin",
        "check",
        "--json",
        "--state-dir",
        str(tmp_path / "s"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environ, timeout=LONG_S
    )
    found = {one["check"]: one["level"] for one in json.loads(done.stdout)}
    assert (done.returncode, found["slurm"]) == (1, "wrong")
