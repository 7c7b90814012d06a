"""Checks a site's Slurm for `bftrainer admin check`, with commands that change nothing."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from bftrainer.errors import SchedulerError
from bftrainer.model.finding import Finding, Level, not_checked, ok, warning, wrong
from bftrainer.schedulers.slurm.check import mixed_gpus, private, versions
from bftrainer.schedulers.slurm.check.heterogeneous import heterogeneous
from bftrainer.schedulers.slurm.check.partitions import (
    Shown,
    named,
    number,
    of_config,
    of_lines,
    partition_findings,
)
from bftrainer.schedulers.slurm.check.processes import process_findings
from bftrainer.schedulers.slurm.command import environment, run
from bftrainer.settings.values import Settings

AHEAD_S = 5.0
"""Seconds by which clocks may differ."""
USUAL = {"sched_min_interval": 2, "batch_sched_delay": 3}
"""Slurm's own values: microseconds between two runs of its scheduler, seconds that it waits for more jobs."""
HOOKS = {
    "Epilog": "runs on a node after each job, before the next may start there",
    "EpilogSlurmctld": "runs on the controller after each job",
    "Prolog": "runs on a node before each job",
    "PrologSlurmctld": "runs on the controller before each job",
}


async def check(settings: Settings) -> list[Finding]:
    """Everything that can be found out of Slurm without changing it."""
    try:
        config = await _asked(settings, "show", "config")
        partitions = of_lines(await _asked(settings, "-a", "-o", "show", "partition"), "PartitionName")
    except SchedulerError as error:
        remedy = (
            "start the check where Slurm's commands work, as the daemon's account; SLURM_CONF may be missing"
        )
        return [wrong("slurm", str(error), remedy)]
    known, uid = of_config(config), _account(settings)
    ending = await _ending(settings, config, uid)
    sees_all = any(one.level is Level.OK for one in ending)
    return [
        *versions.version_findings(settings, known, partitions, await _qos(settings, known)),
        *partition_findings(settings, known, partitions),
        *hook_findings(known),
        *config_findings(known),
        *process_findings(known),
        private_finding(config, uid, sees_all=sees_all),
        *await _gpus(settings, partitions),
        await heterogeneous(settings, known, partitions),
        *ending,
        clock_finding(config, time.time()),
        *await _reservations(settings),
    ]


def _account(settings: Settings) -> int:
    """The daemon's account: who owns its folder, where root asks for it; else who asks."""
    asks = os.geteuid()
    try:
        return settings.state_dir.stat().st_uid if asks == 0 else asks
    except OSError:
        return asks


async def _asked(settings: Settings, *words: str) -> str:
    done = await run(["scontrol", *words], environment(os.environ), settings.command_timeout_s)
    if done.code:
        raise SchedulerError(f"scontrol {' '.join(words)}: {done.words}")
    return done.out


async def _qos(settings: Settings, config: Shown) -> Mapping[str, float] | None:
    if "slurmdbd" not in config.get("AccountingStorageType", ""):
        return None
    try:
        done = await run(versions.QOS, environment(os.environ), settings.command_timeout_s)
    except SchedulerError:
        return None
    return None if done.code else versions.qos_of(done.out)


async def _gpus(settings: Settings, partitions: Mapping[str, Shown]) -> list[Finding]:
    try:
        nodes = of_lines(await _asked(settings, "-a", "-o", "show", "node"), "NodeName")
    except SchedulerError as error:
        return [not_checked(mixed_gpus.CHECK, str(error))]
    default = (name for name, row in partitions.items() if row.get("Default") == "YES")
    partition = settings.slurm_partition or next(default, "")
    return [
        mixed_gpus.gpu_finding(settings, nodes, partition),
        *mixed_gpus.count_finding(settings, nodes, partition),
        *mixed_gpus.lost_finding(nodes, partition),
    ]


def hook_findings(config: Shown) -> list[Finding]:
    """The site's own programs around jobs. Main jobs wait for those of the pilots that they replace. Pure."""
    there = [name for name in HOOKS if named(config.get(name)) or named(config.get(f"{name}[0]"))]
    if not there:
        return [ok("slurm prolog and epilog", "none")]
    said = "; ".join(f"{name} {HOOKS[name]}" for name in there)
    return [
        warning(
            "slurm prolog and epilog",
            said,
            "a main job that takes a pilot's node waits for the epilog of the pilot: keep it short, or have "
            "it skip jobs of the pilots' partition ($SLURM_JOB_PARTITION); docs/slurm-conf.md has more",
        )
    ]


def config_findings(config: Shown) -> list[Finding]:
    """Settings of Slurm that cost main jobs time, or nodes power. Pure."""
    found = []
    if (seconds := number(config, "CompleteWait")) > 0:
        said = f"CompleteWait={seconds:.0f}: Slurm starts no job for up to {seconds:.0f} s while another ends"
        found.append(
            warning("slurm CompleteWait", said, "set it to 0 where main jobs should not wait for pilots")
        )
    if named(config.get("SuspendProgram")) and number(config, "SuspendTime") > 0:
        said = f"nodes are powered down after {number(config, 'SuspendTime'):.0f} s without a job"
        found.append(
            warning(
                "slurm power saving",
                said,
                "nodes that pilots hold stay up: name those that should power down in exclude_nodes",
            )
        )
    slow = [word for word in config.get("SchedulerParameters", "").split(",") if _is_slow(word)]
    if slow:
        said = f"SchedulerParameters has {', '.join(slow)}: jobs start later than Slurm could start them"
        found.append(warning("slurm SchedulerParameters", said, "as you wish: pilots start later, too"))
    return found or [ok("slurm configuration", "nothing in it that costs main jobs time")]


def _is_slow(parameter: str) -> bool:
    """Return whether a word of SchedulerParameters makes Slurm start jobs later than it would by default."""
    name, _, value = parameter.partition("=")
    if name in USUAL:
        return value.isdecimal() and int(value) > USUAL[name]
    return name in ("defer", "defer_batch")


def private_finding(config: str, uid: int, *, sees_all: bool = False) -> Finding:
    """Return whether PrivateData hides from the daemon's account what main jobs wait for; from one that
    `sees_all` it hides nothing. Pure."""
    hidden = () if sees_all else private.hidden(config, uid)
    if not hidden:
        return ok("slurm PrivateData", "hides nothing from the daemon's account")
    return warning(
        "slurm PrivateData",
        f"PrivateData={','.join(hidden)} hides main jobs from an account without a level",
        "make the daemon's account an operator: sacctmgr modify user NAME set adminlevel=operator",
    )


async def _ending(settings: Settings, config: str, uid: int) -> list[Finding]:
    """Return whether the daemon's account may end pilots of users. Only site mode has any."""
    if not settings.exec_prefix:
        return []
    if private.is_slurms_own(config, uid):
        return [ending_finding("Administrator")]
    user = pwd.getpwuid(uid).pw_name
    words = ["sacctmgr", "-n", "-P", "show", "user", user, "format=AdminLevel"]
    try:
        done = await run(words, environment(os.environ), settings.command_timeout_s)
    except SchedulerError as error:
        return [ending_finding("", str(error))]
    return [ending_finding(done.out.strip(), done.words if done.code else "")]


def ending_finding(level: str, unknown: str = "") -> Finding:
    """Report what an account of this level can do about a pilot whose user keeps it; `unknown`: why the level
    is not known. Pure."""
    check = "slurm cancelling"
    if level in private.SEES_ALL:
        return ok(check, "the daemon's account may cancel every user's pilots itself")
    asked = f" (asking for its level: {unknown})" if unknown else ""
    return warning(
        check,
        "the daemon's account can cancel a user's pilot as that user only, and a user can kill what runs as "
        "it: "
        f"then main jobs wait for the pilot's time limit at worst{asked}",
        "make the daemon's account an operator: sacctmgr modify user NAME set adminlevel=operator; "
        "docs/slurm-conf.md says what else that allows",
    )


def clock_finding(config: str, now: float) -> Finding:
    """Return whether this machine's clock is that of the controller, which says when it answered. Pure."""
    first = config.splitlines()[0] if config else ""
    stamp = first.removeprefix("Configuration data as of ").strip()
    try:
        there = float(stamp) if stamp.isdecimal() else datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return not_checked("clock", "scontrol does not say what time the controller has")
    if abs(there - now) > AHEAD_S:
        return wrong(
            "clock",
            f"it differs by {abs(there - now):.0f} s from that of Slurm's controller",
            "have both follow the same time server: time limits of pilots and munge go by it",
        )
    return ok("clock", "as that of Slurm's controller")


async def _reservations(settings: Settings) -> Sequence[Finding]:
    try:
        shown = of_lines(await _asked(settings, "-a", "-o", "show", "reservation"), "ReservationName")
    except SchedulerError as error:
        return [not_checked("slurm reservations", str(error))]
    if not shown:
        return [ok("slurm reservations", "none")]
    said = ", ".join(f"{name} on {row.get('Nodes', '?')}" for name, row in shown.items())
    return [ok("slurm reservations", f"{said}; pilots leave these nodes in time")]
