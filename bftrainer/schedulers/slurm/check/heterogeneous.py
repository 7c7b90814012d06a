"""Checks that Slurm preempts no pilots for heterogeneous jobs, which it would start two minutes later."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from bftrainer.errors import SchedulerError
from bftrainer.model.finding import Finding, not_checked, ok, warning
from bftrainer.schedulers.slurm.check.partitions import Shown, tier_of
from bftrainer.schedulers.slurm.command import environment, run
from bftrainer.settings.values import Settings

CHECK = "slurm heterogeneous jobs"
SEEN = ("squeue", "-a", "-h", "-t", "all", "-o", "%i|%P|%q")
DONE = ("sacct", "-a", "-X", "-n", "-P", "--starttime=now-1days", "--format=JobID,Partition,QOS")
QOS = ("sacctmgr", "-n", "-P", "show", "qos", "format=Name,Preempt")
PUT_OFF_S = 121
"""Seconds that Slurm puts a job off, unless AuthInfo has `cred_expire`: then a second longer than that."""
Component = tuple[str, str, str]
"""The number of a part of a heterogeneous job, its partitions and its QOS."""


async def heterogeneous(settings: Settings, config: Shown, partitions: Mapping[str, Shown]) -> Finding:
    """Ask which such jobs there are, and whether they preempt pilots."""
    if settings.slurm_mode != "preempt":
        return ok(CHECK, "no pilot is preempted for them")
    seen = components(await _asked(settings, SEEN) or "")
    preempts = None
    if "slurmdbd" in config.get("AccountingStorageType", ""):
        seen += components(await _asked(settings, DONE) or "")
        shown = await _asked(settings, QOS)
        preempts = None if shown is None else preempting(shown)
    return finding(settings, config, partitions, seen, preempts)


async def _asked(settings: Settings, words: Sequence[str]) -> str | None:
    """Return a command's output; None: it failed."""
    try:
        done = await run(words, environment(os.environ), settings.command_timeout_s)
    except SchedulerError:
        return None
    return None if done.code else done.out


def components(text: str) -> list[Component]:
    """The parts of heterogeneous jobs of what squeue or sacct printed, a job a line. Pure."""
    rows = [line.split("|") for line in text.splitlines()]
    return [(row[0], row[1], row[2]) for row in rows if len(row) == 3 and "+" in row[0]]


def preempting(text: str) -> dict[str, frozenset[str]]:
    """The QOS that each QOS preempts, of what sacctmgr printed. Pure."""
    rows = [line.split("|") for line in text.splitlines()]
    return {row[0]: frozenset(row[1].split(",")) for row in rows if len(row) == 2}


def finding(
    settings: Settings,
    config: Shown,
    partitions: Mapping[str, Shown],
    seen: Sequence[Component],
    preempts: Mapping[str, frozenset[str]] | None,
) -> Finding:
    """Return the finding on the parts that were seen. `preempts` None: nobody knows which QOS preempts which.
    Pure."""
    kind = config.get("PreemptType", "")
    if not seen:
        return ok(CHECK, "none in the queue, and none that is known of the last day")
    if kind == "preempt/qos" and preempts is None:
        return not_checked(CHECK, "sacctmgr does not say which QOS preempts which", "sacctmgr show qos")
    if kind == "preempt/qos":
        put_off = [job for job, _, qos in seen if settings.slurm_qos in (preempts or {}).get(qos, ())]
        remedy = "run slurm/bftrainer-heterogeneous.sh and set slurm/bftrainer-heterogeneous.lua"
    else:
        ours = tier_of(partitions.get(settings.slurm_partition, {}))
        above = {name for name, row in partitions.items() if tier_of(row) > ours}
        prio = kind == "preempt/partition_prio"
        put_off = [job for job, names, _ in seen if prio and not above.isdisjoint(names.split(","))]
        remedy = "take slurm/bftrainer-qos.conf with slurm/bftrainer-heterogeneous.lua, or slurm_mode window"
    jobs = sorted({job.partition("+")[0] for job in put_off})
    if not jobs:
        return ok(CHECK, "those of the queue and the last day preempt no pilot")
    return warning(
        CHECK,
        f"{len(jobs)} in the queue or the last day, such as {jobs[0]}, may preempt pilots: Slurm puts one "
        f"off for {_put_off_s(config)} s if backfill tries it before the daemon has cleared its nodes",
        f"{remedy}; docs/slurm-conf.md, Heterogeneous jobs",
    )


def _put_off_s(config: Shown) -> int:
    life = re.search(r"\bcred_expire=(\d+)", config.get("AuthInfo", ""))
    return int(life[1]) + 1 if life else PUT_OFF_S
