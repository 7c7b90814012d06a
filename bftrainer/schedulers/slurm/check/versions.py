"""Findings of `bftrainer admin check` on Slurm's version, and on what later ones change for pilots. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bftrainer.model.finding import Finding, not_checked, ok, warning, wrong
from bftrainer.schedulers.slurm.check.partitions import Shown
from bftrainer.schedulers.slurm.dialect import TRIED, Version, named, version
from bftrainer.schedulers.slurm.values import duration_s, words
from bftrainer.settings.values import Settings

QOS = ("sacctmgr", "-n", "-P", "show", "qos", "format=Name,PreemptExemptTime")
"""Asks for what `qos_of` reads."""
CHANGED: Version = (23, 11)
"""From here on sites may have cgroup v2 and auth/slurm."""
ENDS: Version = (26, 5)
"""From here on slurmctld ends where AllowQos names a QOS that does not exist."""


def qos_of(text: str) -> Mapping[str, float]:
    """For how many seconds jobs of each QOS are never preempted, of what `QOS` printed."""
    rows = [line.split("|") for line in text.splitlines()]
    return {row[0]: duration_s(row[1]) or 0.0 for row in rows if len(row) == 2}


def version_findings(
    settings: Settings, config: Shown, partitions: Mapping[str, Shown], qos: Mapping[str, float] | None
) -> list[Finding]:
    """Everything that depends on the version; `qos` None: they could not be asked for."""
    known = version(f"SLURM_VERSION = {config.get('SLURM_VERSION', '')}")
    found = [_version(config, known), *_exempt(settings, config, qos or {})]
    found += _allowed(settings, partitions, known, qos)
    if known is None or known >= CHANGED:
        found += [_cgroup(config), _auth(settings, config)]
    return found


def _version(config: Shown, known: Version | None) -> Finding:
    said = f"version {config.get('SLURM_VERSION', '?')}, cluster {config.get('ClusterName', '?')}"
    tried = ", ".join(map(named, TRIED))
    if known in TRIED:
        return ok("slurm", said)
    if known is not None and TRIED[0] < known < TRIED[-1]:
        return ok("slurm", f"{said}; it lies between those that bftrainer was tried on: {tried}")
    return warning(
        "slurm",
        f"{said}: bftrainer was tried on {tried}, and may not know all words of this one; where it does "
        "not, it gives main jobs more nodes than they need",
        "look for a later bftrainer, and watch `bftrainer impact` for main jobs that wait",
    )


def _exempt(settings: Settings, config: Shown, qos: Mapping[str, float]) -> Iterator[Finding]:
    """Check whether Slurm spares pilots for a while that main jobs would preempt."""
    if settings.slurm_mode != "preempt":
        return
    check = "slurm PreemptExemptTime"
    everywhere = duration_s(config.get("PreemptExemptTime", "")) or 0.0
    seconds = qos.get(settings.slurm_qos, 0.0) or everywhere
    if seconds:
        where = f"of the QOS {settings.slurm_qos}" if qos.get(settings.slurm_qos) else "of the configuration"
        said = (
            f"{seconds:.0f} s, {where}: Slurm preempts no pilot that has run for less, so main jobs may wait"
        )
        yield warning(
            check, said, "set it to 00:00:00: the daemon gives nodes back, but later than Slurm could"
        )
    else:
        yield ok(check, "0 s: Slurm preempts pilots at once")


def _allowed(
    settings: Settings,
    partitions: Mapping[str, Shown],
    known: Version | None,
    qos: Mapping[str, float] | None,
) -> Iterator[Finding]:
    """Check that AllowQos lets pilots in, and names only QOS that exist."""
    check = "slurm AllowQos"
    lists = {name: words(row.get("AllowQos", "ALL")) for name, row in partitions.items()}
    lists = {name: listed for name, listed in lists.items() if listed != ("ALL",)}
    own = lists.get(settings.slurm_partition)
    if own is not None and settings.slurm_qos not in own:
        pilots = settings.slurm_qos or "no QOS"
        said = f"{settings.slurm_partition} lets in {', '.join(own)}; pilots have {pilots}"
        yield wrong(check, said, "set slurm_qos to one of these")
    if not lists:
        return
    if qos is None:
        yield not_checked(check, "sacctmgr does not say which QOS there are", " ".join(QOS))
        return
    missing = sorted({name for listed in lists.values() for name in listed} - qos.keys())
    if not missing:
        yield ok(check, f"every QOS that {', '.join(lists)} let in exists")
        return
    ends = known is None or known >= ENDS
    said = f"partitions name {', '.join(missing)}, which does not exist: "
    said += "slurmctld ends when it reads that" if ends else f"from {named(ENDS)} on slurmctld ends there"
    make = f"sacctmgr add qos {missing[0]}, or take the name out of AllowQos"
    yield (wrong if ends else warning)(check, said, make)


def _cgroup(config: Shown) -> Finding:
    check, plugin = "slurm cgroup", config.get("CgroupPlugin", "autodetect")
    if plugin == "disabled":
        said = "CgroupPlugin=disabled: Slurm does not find all processes of a pilot, nor bound its memory"
        return warning(
            check, said, "set CgroupPlugin=autodetect in cgroup.conf, and restart slurmd on all nodes"
        )
    return ok(
        check, f"CgroupPlugin={plugin}; with cgroup v2, slurmd needs systemd on its node or IgnoreSystemd=yes"
    )


def _auth(settings: Settings, config: Shown) -> Finding:
    check, kind = "slurm AuthType", config.get("AuthType", "auth/munge")
    if kind == "auth/munge" or not settings.munge:
        beside = "" if kind == "auth/munge" else ": munge is not needed, neither by Slurm nor by the daemon"
        return ok(check, f"{kind}{beside}; users' pilots need sbatch alone")
    return warning(
        check,
        f"{kind}: Slurm itself runs without munge, but the setting munge is on: users' commands need it",
        "run munged with one key here and where users work; or turn munge off, and have users work here",
    )
