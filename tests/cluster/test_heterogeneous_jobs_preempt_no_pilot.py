"""What a site sets so that heterogeneous jobs never preempt pilots, and what Slurm does without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from benchmarks.testbeds.waiting import until
from bftrainer.model.finding import Level
from bftrainer.schedulers.slurm.check.heterogeneous import CHECK
from slurm.testbed import Testbed, why_not
from slurm.testbed.plan import FRAGMENTS
from tests.support.waiting import LONG_S

TRIES = 3
PASSES_S = 2.5
"""Backfill has its turn once a second."""
SOON_S = 15.0
JOB = "#!/bin/sh\n#SBATCH -N1 -t 1\n#SBATCH hetjob\n#SBATCH -N2 -t 1\nexec sleep 300\n"
ALONE = "#!/bin/sh\nexec sleep 300\n"
PILOT = ("-p", "backfill", "-N1", "-t10", "--exclusive")
AS_SITE = ("--account=bftrainer", "--qos=bftrainer")


def submit(bed: Testbed, script: str, *options: str) -> str:
    return bed.run(["sbatch", "--parsable", "--output=/dev/null", *options], input=script).stdout.strip()


def shown(bed: Testbed, form: str, *jobs: str) -> list[str]:
    return bed.run(["squeue", "-h", "-o", form, "-j", ",".join(jobs)]).stdout.split()


def runs(bed: Testbed, *jobs: str) -> bool:
    return set(shown(bed, "%T", *jobs)) == {"RUNNING"}


def with_pilots(bed: Testbed, *options: str) -> list[str]:
    """Pilots on all nodes but the first."""
    pilots = [submit(bed, ALONE, *PILOT, *options, "-w", node) for node in bed.plan.names()[1:]]
    assert until(lambda: runs(bed, *pilots), SOON_S)
    return pilots


def emptied(bed: Testbed) -> None:
    bed.run(["scancel", "-u", "root"])
    bed.wait_idle()


def put_off(bed: Testbed) -> int:
    """How often a heterogeneous job was put off so far."""
    log = (bed.plan.directory / "log" / "slurmctld.log").read_text("utf-8", "replace")
    return len(re.findall(r"_het_job_kill_now: Deallocate", log))


def checked(bed: Testbed) -> Level:
    """What `bftrainer admin check` says of them."""
    environ = os.environ | {
        "SLURM_CONF": str(bed.plan.conf),
        "BFTRAINER_SITE_CONFIG": "/none",
        "XDG_CONFIG_HOME": "/none",
        "BFTRAINER_SLURM_PARTITION": "backfill",
        "BFTRAINER_SLURM_QOS": "bftrainer",
        "BFTRAINER_SLURM_MODE": "preempt",
        "BFTRAINER_STATE_DIR": str(bed.plan.directory / "daemon"),
    }
    words = [sys.executable, "-m", "bftrainer", "admin", "check", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environ, timeout=LONG_S)
    (found,) = [one["level"] for one in json.loads(done.stdout) if one["check"] == CHECK]
    return Level(found)


@pytest.fixture(scope="module")
def site() -> Iterator[Testbed]:
    if why := why_not(slurmdbd=True):
        pytest.skip(why)
    with Testbed(nodes=4, heterogeneous=True) as bed:
        yield bed


def test_with_what_a_site_sets_none_is_put_off_and_other_jobs_still_preempt(site: Testbed) -> None:
    for _ in range(TRIES):
        pilots = with_pilots(site, *AS_SITE)
        job = submit(site, JOB)
        time.sleep(PASSES_S)
        assert runs(site, *pilots), "no pilot was preempted"
        assert set(shown(site, "%q", job)) == {"normal-het"}
        assert checked(site) is Level.OK
        site.run(["scancel", *pilots])  # as the daemon does
        assert until(lambda job=job: runs(site, job), SOON_S)  # type: ignore[misc]
        emptied(site)
    assert not put_off(site)
    with_pilots(site, *AS_SITE)
    job = submit(site, ALONE, "-N4")
    assert until(lambda: runs(site, job), SOON_S), "a job of another kind preempts them"
    emptied(site)


def test_the_check_finds_those_that_preempt_pilots(site: Testbed) -> None:
    first = submit(site, ALONE, "-N4")
    job = submit(site, JOB)
    assert checked(site) is Level.OK
    site.run(["scontrol", "update", f"JobId={job}", "QOS=normal"])
    assert checked(site) is Level.WARNING
    site.run(["scancel", job, first])
    site.wait_idle()


def test_they_keep_their_place_in_the_queue(site: Testbed) -> None:
    first = submit(site, ALONE, "-N4")
    assert until(lambda: runs(site, first), SOON_S)
    job = submit(site, JOB)
    behind = submit(site, ALONE, "-N3", "-t1")
    site.run(["scancel", first])
    assert until(lambda: runs(site, job), SOON_S)
    assert not runs(site, behind)
    emptied(site)


def test_twins_can_be_made_again_and_keep_what_else_their_qos_preempts(site: Testbed) -> None:
    change = ("sacctmgr", "-i")
    site.run([*change, "add", "qos", "high", "priority=7", "preempt=normal"])
    site.run([*change, "modify", "user", "root", "where", "account=main", "set", "qos=normal,high"])
    for _ in range(2):
        site.run([str(FRAGMENTS / "bftrainer-heterogeneous.sh"), "normal", "high"])
    shown = site.run(["sacctmgr", "-n", "-P", "show", "qos", "format=Name,Priority,Preempt"]).stdout.split()
    assert {"normal|0|bftrainer", "normal-het|0|", "high-het|7|normal"} <= set(shown), shown
    assert {"high|7|bftrainer,normal", "high|7|normal,bftrainer"} & set(shown), shown
    mine = ("where", "user=root", "account=main", "format=QOS")
    (own,) = site.run(["sacctmgr", "-n", "-P", "show", "associations", *mine]).stdout.split()
    assert set(own.split(",")) == {"normal", "normal-het", "high", "high-het"}


@pytest.mark.nightly
def test_without_it_slurm_preempts_pilots_and_puts_the_job_off_which_starttime_undoes(bed: Testbed) -> None:
    before = put_off(bed)
    with_pilots(bed)
    job = submit(bed, JOB)
    assert until(lambda: put_off(bed) > before, SOON_S)
    assert until(lambda: "BeginTime" in shown(bed, "%r", job), SOON_S)
    time.sleep(PASSES_S)
    assert not runs(bed, job), "it waits although its nodes are idle"
    bed.run(["scontrol", "update", f"JobId={job}", "StartTime=now"])
    assert until(lambda: runs(bed, job), SOON_S)
    emptied(bed)


def test_what_a_site_has_added_is_undone_in_the_order_that_is_told() -> None:
    """First the partition goes, then the QOS that it lets in: slurmctld starts after each step."""
    if why := why_not(slurmdbd=True):
        pytest.skip(why)
    told = "".join((FRAGMENTS / f"bftrainer-{name}.sh").read_text() for name in ("qos", "heterogeneous"))
    undo = re.findall(r"sacctmgr delete (account|qos) ([\w-]+)", told)
    assert undo == [("account", "bftrainer"), ("qos", "bftrainer"), ("qos", "QOS-het")]
    with Testbed(nodes=1, heterogeneous=True) as bed:
        conf = bed.plan.conf
        conf.write_text(re.sub(r"(?m)^Include .*$", "", conf.read_text()))
        restarted(bed)
        assert "backfill" not in bed.run(["sinfo", "-h", "-o", "%R"]).stdout
        for kind, name in undo:
            bed.run(["sacctmgr", "-i", "delete", kind, name.replace("QOS", "normal")])
        restarted(bed)
        left = bed.run(["sacctmgr", "-n", "-P", "show", "qos", "format=Name,Preempt"]).stdout.splitlines()
        assert left == ["normal|"]


def restarted(bed: Testbed) -> None:
    bed.stop_controller()
    bed.start_controller()
    bed.wait_idle()
