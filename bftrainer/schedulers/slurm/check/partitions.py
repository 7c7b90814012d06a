"""Checks that Slurm's partitions let pilots give way to main jobs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bftrainer.model.finding import Finding, not_checked, ok, warning, wrong
from bftrainer.settings.values import Settings

Shown = Mapping[str, str]
"""Names and values as scontrol shows them."""
NOTHING = frozenset({"", "(null)", "none", "N/A"})
EXCLUSIVE = "EXCLUSIVE"
OURS = "slurm/bftrainer-partition.conf has the lines"


def of_config(text: str) -> Shown:
    """Parse `scontrol show config`: a name and a value a line. Of plugins, later versions say `(null)`
    where others say `none`."""
    found = re.findall(r"^(\w+(?:\[\d+\])?)\s*=[ ]?(.*?)\s*$", text, re.MULTILINE)
    return {name: "none" if value == "(null)" else value for name, value in found}


def of_lines(text: str, first: str) -> dict[str, Shown]:
    """Parse `scontrol -o`, a record a line, by its name: the value of `first`."""
    rows = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in text.splitlines() if line.startswith(first)]
    return {row[first]: row for row in rows}


def named(value: str | None) -> bool:
    """Return whether a value says something."""
    return value is not None and value not in NOTHING


def number(config: Shown, name: str) -> float:
    """The number at the beginning of a value such as `30 sec`; 0 where there is none."""
    word = config.get(name, "").split(" ")[0]
    return float(word) if word.isdecimal() else 0.0


def partition_findings(settings: Settings, config: Shown, partitions: Mapping[str, Shown]) -> list[Finding]:
    """Check that pilots have a partition, whether main jobs precede them, and what their jobs may use."""
    name = settings.slurm_partition or next(
        (n for n, row in partitions.items() if row.get("Default") == "YES"), ""
    )
    ours = partitions.get(name)
    if ours is None:
        said = f"there is no partition {name!r}" if name else "Slurm has no default partition"
        return [wrong("slurm partition", said, f"set slurm_partition; {OURS} for one of the pilots' own")]
    found = []
    if ours.get("State") != "UP":
        said = f"{name} is {ours.get('State', 'unknown')}: no pilot starts there"
        found.append(wrong("slurm partition", said, f"scontrol update PartitionName={name} State=UP"))
    else:
        found.append(ok("slurm partition", f"{name} is up, with {ours.get('TotalNodes', '?')} nodes"))
    if settings.slurm_mode == "preempt":
        found += _preemption(settings, config, partitions, name)
    found += _limits(name, ours, parts=settings.harvest == "gpus")
    return found


def _preemption(
    settings: Settings, config: Shown, partitions: Mapping[str, Shown], name: str
) -> list[Finding]:
    """Return whether any main job may take a pilot's node at once."""
    check, ours = "slurm preemption", partitions[name]
    kind = config.get("PreemptType", "")
    if kind == "preempt/qos":
        return [
            not_checked(
                check, f"PreemptType={kind}: what preempts what stands in the QOSs", "sacctmgr show qos"
            )
        ]
    if kind != "preempt/partition_prio":
        said = f"PreemptType={kind or 'unknown'}: main jobs wait until the daemon gives their nodes back"
        return [wrong(check, said, f"{OURS}; or set slurm_mode to window, where no pilot outlasts its hole")]
    found = []
    mode = ours.get("PreemptMode") or config.get("PreemptMode", "")
    if "CANCEL" not in mode:
        said = f"PreemptMode of {name} is {mode}: a preempted pilot does not end"
        found.append(wrong(check, said, f"set PreemptMode=CANCEL for {name}; {OURS}"))
    tier = tier_of(ours)
    for other in [n for n in settings.slurm_watch.split(",") if n and n != name] or [
        n for n in partitions if n != name
    ]:
        row = partitions.get(other)
        if row is None:
            found.append(wrong(check, f"slurm_watch names {other}, which there is not", "mend slurm_watch"))
        elif tier_of(row) <= tier:
            said = f"{other} has PriorityTier {tier_of(row)}, {name} {tier}: jobs of {other} preempt no pilot"
            found.append(wrong(check, said, f"give {other} a PriorityTier above {tier}"))
    if not found:
        found.append(ok(check, f"every other partition preempts jobs of {name}"))
    return found


def _limits(name: str, ours: Shown, *, parts: bool) -> list[Finding]:
    found = []
    if ours.get("GraceTime", "0") != "0":
        said = f"GraceTime of {name} is {ours['GraceTime']} s: a main job waits so long for a preempted pilot"
        found.append(warning("slurm GraceTime", said, f"set GraceTime=0 for {name}: an agent leaves at once"))
    shares = sharing(ours)
    if parts and shares == EXCLUSIVE:
        said = f"OverSubscribe of {name} is EXCLUSIVE: with harvest gpus no pilot starts on a node in use"
        found.append(
            wrong("slurm OverSubscribe", said, f"set OverSubscribe=NO for {name}; or harvest: nodes")
        )
    if shares not in {EXCLUSIVE, "NO"}:
        said = f"OverSubscribe of {name} is {shares}"
        found.append(warning("slurm OverSubscribe", said, f"set OverSubscribe=EXCLUSIVE for {name}"))
    if ours.get("MaxTime", "UNLIMITED") not in {"UNLIMITED", "INFINITE"}:
        found.append(ok("slurm MaxTime", f"{ours['MaxTime']}: pilots of {name} last no longer"))
    return found


def sharing(row: Shown) -> str:
    """Return how jobs of a partition share nodes, in the words of slurm.conf. Later versions show in a field
    of its own that they do not: as NODE, or the likes of USER and TOPO."""
    alone = row.get("Exclusive", "NO")
    return row.get("OverSubscribe", EXCLUSIVE) if alone == "NO" else EXCLUSIVE if alone == "NODE" else alone


def tier_of(row: Shown) -> int:
    """The PriorityTier of a partition; Slurm's default is 1."""
    tier = row.get("PriorityTier", "")
    return int(tier) if tier.isdecimal() else 1
