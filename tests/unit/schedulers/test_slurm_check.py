"""What the check of a site says of Slurm: each way to set it up badly, and what is found."""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from bftrainer.model.finding import Finding, Level, ok
from bftrainer.schedulers.slurm.check import check
from bftrainer.schedulers.slurm.check.partitions import of_config, of_lines, partition_findings
from bftrainer.schedulers.slurm.check.processes import outliving, process_findings
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings
from tests.support.slurm_commands import Commands

CONFIG = """\
Configuration data as of 2026-01-02T03:04:05
ClusterName             = testbed
CompleteWait            = 0 sec
Epilog                  = (null)
EpilogSlurmctld         = (null)
KillWait                = 30 sec
PreemptMode             = CANCEL
PreemptType             = preempt/partition_prio
PrivateData             = none
ProctrackType           = proctrack/cgroup
Prolog                  = (null)
SchedulerParameters     = bf_interval=2,sched_interval=2
SLURM_VERSION           = 22.05.8
SlurmUser               = slurm(64030)
SuspendProgram          = (null)
SuspendTime             = INFINITE
TaskPlugin              = task/affinity,task/cgroup
UnkillableStepProgram   = (null)
UnkillableStepTimeout   = 60 sec

Cgroup Support Configuration:
ConstrainRAMSpace       = yes

Slurmctld(primary) at login1 is UP
"""
BATCH = "PartitionName=batch Default=YES PreemptMode=OFF PriorityTier=10 State=UP TotalNodes=4"
BACKFILL = (
    "PartitionName=backfill Default=NO GraceTime=0 MaxTime=UNLIMITED OverSubscribe=EXCLUSIVE "
    "PreemptMode=CANCEL PriorityTier=1 State=UP TotalNodes=4"
)


def settings(**given: object) -> Settings:
    return load(
        {"scheduler": "slurm", "slurm_partition": "backfill", "slurm_watch": "batch", **given},
        environ={"XDG_CONFIG_HOME": "/none", "BFTRAINER_SITE_CONFIG": "/none"},
    )


def found(
    config: str = CONFIG, batch: str = BATCH, backfill: str = BACKFILL, **given: object
) -> list[Finding]:
    partitions = of_lines(f"{batch}\n{backfill}\n", "PartitionName")
    return partition_findings(settings(**given), of_config(config), partitions)


def bad(findings: list[Finding]) -> list[tuple[str, Level]]:
    assert all(one.remedy for one in findings if one.level is not Level.OK), "each says what to do"
    return [(one.check, one.level) for one in findings if one.level is not Level.OK]


def test_a_slurm_as_it_should_be() -> None:
    known = of_config(CONFIG)
    assert known["SLURM_VERSION"] == "22.05.8"
    assert bad([*found(), *check.hook_findings(known), *check.config_findings(known)]) == []
    assert bad(process_findings(known)) == []


@pytest.mark.parametrize(
    ("instead", "of", "finding"),
    [
        (
            "PreemptType             = preempt/none",
            "PreemptType             = preempt/partition_prio",
            Level.WRONG,
        ),
        (
            "PreemptType             = preempt/qos",
            "PreemptType             = preempt/partition_prio",
            Level.NOT_CHECKED,
        ),
    ],
)
def test_pilots_must_be_preemptible(instead: str, of: str, finding: Level) -> None:
    assert bad(found(CONFIG.replace(of, instead))) == [("slurm preemption", finding)]
    assert bad(found(CONFIG.replace(of, instead), slurm_mode="window")) == [], "window mode needs none"


@pytest.mark.parametrize(
    ("old", "new", "which", "level"),
    [
        ("State=UP", "State=DOWN", "slurm partition", Level.WRONG),
        ("PreemptMode=CANCEL", "PreemptMode=OFF", "slurm preemption", Level.WRONG),
        ("PriorityTier=1 ", "PriorityTier=10 ", "slurm preemption", Level.WRONG),
        ("GraceTime=0", "GraceTime=60", "slurm GraceTime", Level.WARNING),
        ("OverSubscribe=EXCLUSIVE", "OverSubscribe=FORCE:4", "slurm OverSubscribe", Level.WARNING),
        ("PartitionName=backfill", "PartitionName=other", "slurm partition", Level.WRONG),
    ],
)
def test_what_is_wrong_with_the_pilots_partition(old: str, new: str, which: str, level: Level) -> None:
    assert bad(found(backfill=BACKFILL.replace(old, new))) == [(which, level)]


def test_no_pilot_gets_a_part_of_a_node_in_a_partition_that_gives_whole_ones() -> None:
    assert bad(found(harvest="gpus")) == [("slurm OverSubscribe", Level.WRONG)]
    assert not bad(found(harvest="gpus", backfill=BACKFILL.replace("=EXCLUSIVE", "=NO")))


def test_a_watched_partition_that_is_not_there_and_none_at_all() -> None:
    assert bad(found(slurm_watch="batch,gpu")) == [("slurm preemption", Level.WRONG)]
    nothing = partition_findings(settings(slurm_partition=""), of_config(CONFIG), {})
    assert bad(nothing) == [("slurm partition", Level.WRONG)]


@pytest.mark.parametrize("name", sorted(check.HOOKS))
def test_the_sites_programs_around_jobs_are_told_as_main_jobs_pay_for_them(name: str) -> None:
    line = f"{name:<24}= (null)" if f"{name:<24}= (null)" in CONFIG else None
    config = (
        CONFIG.replace(line, f"{name:<24}= /etc/slurm/x.sh") if line else f"{CONFIG}{name}[0] = /etc/x.sh\n"
    )
    (finding,) = check.hook_findings(of_config(config))
    assert (finding.level, name in finding.found) == (Level.WARNING, True)


@pytest.mark.parametrize(
    ("old", "new", "which"),
    [
        ("CompleteWait            = 0 sec", "CompleteWait            = 32 sec", "slurm CompleteWait"),
        (
            "SuspendProgram          = (null)\nSuspendTime             = INFINITE",
            "SuspendProgram          = /etc/off.sh\nSuspendTime             = 600 sec",
            "slurm power saving",
        ),
        ("bf_interval=2", "defer,bf_interval=2", "slurm SchedulerParameters"),
    ],
)
def test_what_costs_main_jobs_time_or_nodes_power_is_told(old: str, new: str, which: str) -> None:
    assert bad(check.config_findings(of_config(CONFIG.replace(old, new)))) == [(which, Level.WARNING)]


@pytest.mark.parametrize(
    ("old", "new", "which", "why"),
    [
        ("proctrack/cgroup", "proctrack/linuxproc", "slurm ProctrackType", "beside the next main job"),
        ("proctrack/cgroup", "proctrack/pgid", "slurm ProctrackType", "proctrack/pgid"),
        ("ProctrackType           = proctrack/cgroup\n", "", "slurm ProctrackType", "unknown"),
        ("task/affinity,task/cgroup", "task/affinity", "slurm memory", "TaskPlugin=task/affinity:"),
        ("ConstrainRAMSpace       = yes", "ConstrainRAMSpace       = no", "slurm memory", "cgroup.conf"),
        ("KillWait                = 30", "KillWait                = 120", "slurm KillWait", "120 s"),
        ("StepTimeout   = 60", "StepTimeout   = 10", "slurm UnkillableStepTimeout", "drains a node"),
    ],
)
def test_what_keeps_the_processes_of_pilots_on_nodes_is_told(
    old: str, new: str, which: str, why: str
) -> None:
    assert old in CONFIG
    findings = process_findings(of_config(CONFIG.replace(old, new)))
    assert bad(findings) == [(which, Level.WARNING)]
    assert any(why in one.found for one in findings if one.check == which)


def test_private_data_is_told_to_an_account_without_a_level() -> None:
    config = CONFIG.replace("PrivateData             = none", "PrivateData             = jobs,usage")
    assert check.private_finding(config, 1000).level is Level.WARNING
    assert check.private_finding(config, 64030).level is Level.OK
    assert check.private_finding(CONFIG, 1000).level is Level.OK
    assert check.private_finding(config, 1000, sees_all=True).level is Level.OK, "an operator"


def test_a_clock_that_differs_is_wrong() -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1_000_000))
    config = f"Configuration data as of {stamp}\n"
    assert check.clock_finding(config, 1_000_001.0).level is Level.OK
    assert check.clock_finding(config, 1_000_060.0).level is Level.WRONG
    assert check.clock_finding("Configuration data as of 1000000\n", 1_000_060.0).level is Level.WRONG
    assert check.clock_finding("", 0.0).level is Level.NOT_CHECKED


def test_power_saving_that_is_switched_off_costs_nothing() -> None:
    config = of_config(CONFIG.replace("SuspendProgram          = (null)", "SuspendProgram = /sbin/sleep"))
    assert bad(check.config_findings(config)) == []


@dataclass(frozen=True)
class Answered:
    """What a command of Slurm has answered."""

    out: str
    code: int = 0
    words: str = "no contact to the controller"


@pytest.mark.parametrize(
    ("fails", "told"),
    [("config", ("slurm", Level.WRONG)), ("reservation", ("slurm reservations", Level.NOT_CHECKED))],
)
def test_a_question_that_fails_is_told_and_ends_no_check(
    monkeypatch: pytest.MonkeyPatch, fails: str, told: tuple[str, Level]
) -> None:
    async def run(words: list[str], *others: object) -> Answered:
        what = words[-1]
        out = {"config": CONFIG, "partition": f"{BATCH}\n{BACKFILL}\n"}.get(what, "")
        return Answered("" if what == fails else out, int(what == fails))

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr(check, "clock_finding", lambda config, now: ok("clock", "as it should be"))
    findings = asyncio.run(check.check(settings()))
    (one,) = (finding for finding in findings if finding.level is not Level.OK)
    assert (one.check, one.level) == told and "no contact to the controller" in one.found


def test_an_account_that_can_cancel_pilots_only_as_their_users_is_told_the_risk() -> None:
    assert check.ending_finding("Operator").level is Level.OK
    assert check.ending_finding("Administrator").level is Level.OK
    for level in ("None", ""):
        found = check.ending_finding(level)
        assert found.level is Level.WARNING and "adminlevel=operator" in found.remedy
    assert "slurmdbd is down" in check.ending_finding("", "slurmdbd is down").found


def test_only_site_mode_is_asked_whether_it_can_cancel_users_pilots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(tmp_path)
    commands.set("sacctmgr", "echo None")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(
        check.pwd, "getpwuid", lambda uid: pwd.struct_passwd(("bft", "x", uid, uid, "", "", ""))
    )
    site = settings(mode="site", exec_prefix=("sudo", "-u", "{user}"), socket="/run/bftrainer/daemon.sock")
    (found,) = asyncio.run(check._ending(site, CONFIG, 64030))
    assert found.level is Level.OK, "Slurm's own user"
    (found,) = asyncio.run(check._ending(site, CONFIG, 999))
    assert found.level is Level.WARNING
    assert asyncio.run(check._ending(settings(), CONFIG, 999)) == []


def test_root_is_told_of_the_daemons_account_and_not_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = settings(state_dir=str(tmp_path))
    owner = tmp_path.stat().st_uid
    for asks, told in ((0, owner), (owner + 1, owner + 1)):
        monkeypatch.setattr(check.os, "geteuid", lambda asks=asks: asks)
        assert check._account(site) == told
    monkeypatch.setattr(check.os, "geteuid", lambda: 0)
    assert check._account(settings(state_dir=str(tmp_path / "none"))) == 0

    async def run(words: list[str], *others: object) -> Answered:
        what = words[-1]
        config = CONFIG.replace("PrivateData             = none", "PrivateData             = jobs")
        return Answered({"config": config, "partition": f"{BATCH}\n{BACKFILL}\n"}.get(what, ""), 0, "")

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr(check, "_account", lambda settings: 999)
    found = {one.check: one.level for one in asyncio.run(check.check(site))}
    assert found["slurm PrivateData"] is Level.WARNING, "from root it would hide nothing"


def test_a_daemon_warns_of_processes_that_outlive_their_pilots() -> None:
    assert "ProctrackType is proctrack/pgid" in outliving({"ProctrackType": "proctrack/pgid"})
    assert outliving({"ProctrackType": "proctrack/cgroup"}) == outliving({}) == ""
