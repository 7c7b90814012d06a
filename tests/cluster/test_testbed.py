"""The testbed itself: what it starts, what it leaves behind, and the faults that it can play."""

from __future__ import annotations

import pwd
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.testbeds.waiting import until
from slurm.testbed import Testbed, TestbedError
from tests.support.processes import left

LONG_S = 240.0
FOREVER = "sleep 1000 & sleep 1000"


def job(bed: Testbed, *options: str, script: str = FOREVER, user: str | None = None) -> str:
    command = ["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", script]
    return bed.run(command, user=user).stdout.strip()


def state(bed: Testbed, number: str) -> str:
    return bed.run(["squeue", "-h", "-t", "all", "-j", number, "-o", "%T"]).stdout.strip()


def gone(place: Path) -> None:
    """Wait until no process names the folder: one that was killed needs a core to end."""
    assert until(lambda: not left(place), LONG_S), f"{left(place)} are left"


def becomes(bed: Testbed, number: str, wanted: str) -> None:
    assert until(lambda: state(bed, number) == wanted, LONG_S), f"{state(bed, number)} is not {wanted}"


def test_two_side_by_side_with_jobs_and_nothing_is_left() -> None:
    with (
        Testbed(nodes=2, features={"n2": "fast"}, gres={"n1": "gpu:2"}) as one,
        Testbed(nodes=2, preemption=False) as two,
    ):
        shown = one.run(["sinfo", "-h", "-N", "-p", "batch", "-o", "%N %f %G"]).stdout.split("\n")
        assert shown[:2] == ["n1 (null) gpu:2", "n2 fast (null)"]
        config = two.run(["scontrol", "show", "config"]).stdout
        assert re.search(r"^PreemptType +=( preempt/none| \(null\))$", config, re.MULTILINE)
        for bed in (one, two):
            becomes(bed, job(bed, "-N2"), "RUNNING")
        assert len(one.run(["squeue", "-h"]).stdout.splitlines()) == 1
    for bed in (one, two):
        gone(bed.plan.directory)
        assert not bed.plan.directory.exists()


def test_another_process_takes_it_down(place: Path) -> None:
    command = [sys.executable, "-m", "slurm.testbed"]
    up = subprocess.run(
        [*command, "up", "--nodes", "1", "--dir", str(place)], capture_output=True, text=True, check=True
    )
    assert f"export SLURM_CONF={place}/slurm.conf" in up.stdout
    again = subprocess.run([*command, "up", "--dir", str(place)], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    bed = Testbed.at(place)
    becomes(bed, job(bed), "RUNNING")
    bed.kill_slurmd("n1")
    status = subprocess.run(
        [*command, "status", "--dir", str(place)], capture_output=True, text=True, check=False
    )
    assert status.returncode == 1
    *daemons, node = status.stdout.splitlines()
    assert daemons == ["munged\talive", "slurmctld\talive"]
    assert node.startswith("n1\tgone\t"), node
    subprocess.run([*command, "down", "--dir", str(place)], check=True)
    gone(place)
    with pytest.raises(TestbedError, match="no testbed there"):
        Testbed.at(place)


def test_a_main_job_takes_a_pilots_node_at_once(bed: Testbed) -> None:
    pilot = job(bed, "-p", "backfill", "-N4", "--no-requeue", script="exec sleep 1000")
    becomes(bed, pilot, "RUNNING")
    main = job(bed, "-N1", script="exec sleep 1")
    becomes(bed, main, "COMPLETED")
    assert state(bed, pilot) == "PREEMPTED"
    bed.wait_idle()


def test_a_job_runs_as_its_user(bed: Testbed, users: tuple[str, str]) -> None:
    for user in users:
        home = pwd.getpwnam(user).pw_dir
        number = job(bed, script="id -un > who; munge -n -S $BFTRAINER_MUNGE_SOCKET > proof", user=user)
        becomes(bed, number, "COMPLETED")
        assert Path(home, "who").read_text().strip() == user
        proof = Path(home, "proof").read_text()
        shown = bed.run(["unmunge", "-S", str(bed.plan.munge_socket)], input=proof).stdout
        assert f"{user} ({pwd.getpwnam(user).pw_uid})" in shown


def test_the_controller_comes_and_goes(bed: Testbed) -> None:
    number = job(bed)
    becomes(bed, number, "RUNNING")
    bed.pause_controller()
    assert not bed.answers()
    bed.continue_controller()
    assert state(bed, number) == "RUNNING"
    bed.stop_controller()
    assert not bed.answers()
    with pytest.raises(TestbedError, match="does not run"):
        bed.pause_controller()
    bed.start_controller()
    assert state(bed, number) == "RUNNING"
    with pytest.raises(TestbedError, match="runs already"):
        bed.start_controller()
    bed.run(["scancel", number])
    bed.wait_idle()


def test_nodes_fail_and_come_back(bed: Testbed, tmp_path: Path) -> None:
    began = tmp_path / "began"
    number = job(bed, "-w", "n2", "--no-requeue", script=f"touch {began}; {FOREVER}")
    # A job is RUNNING before its node has launched it; Slurm queues one again whose launch failed.
    assert until(began.exists, LONG_S)
    bed.kill_slurmd("n2")
    assert not bed.status()["n2"]
    bed.set_node("n2", "down")
    becomes(bed, number, "NODE_FAIL")
    bed.start_slurmd("n2")
    bed.set_node("n2", "resume")
    bed.wait_idle()
    bed.set_node("n3", "drain", "broken fan")
    assert bed.states()["n3"] == "drain"
    bed.set_node("n3", "resume")
    bed.wait_idle()
    with pytest.raises(TestbedError, match="no node 'n9'; there are n1 to n4"):
        bed.kill_slurmd("n9")


def test_a_slurm_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    from slurm.testbed import plan as plans

    right = plans.files
    monkeypatch.setattr(
        plans,
        "files",
        lambda plan: {
            **right(plan),
            "slurm.conf": right(plan)["slurm.conf"] + "SelectType=select/no_such_plugin\n",
        },
    )
    with pytest.raises(TestbedError, match="slurmctld ended before") as caught:
        Testbed(nodes=1, directory=place).up()
    assert "no_such_plugin" in str(caught.value)
    assert not place.exists()
    gone(place)
