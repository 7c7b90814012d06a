"""Checks how Slurm ends and confines the processes of pilots, for `bftrainer admin check`. Pure.

Users' programs run in pilots. What of them outlives a pilot is on the node of a main job.
"""

from __future__ import annotations

from bftrainer.model.finding import Finding, ok, warning
from bftrainer.schedulers.slurm.check.partitions import Shown, named, number

CGROUP = "proctrack/cgroup"
KILL_WAIT_S = 30.0
UNKILLABLE_S = 60.0
"""Slurm's own defaults."""


def process_findings(config: Shown) -> list[Finding]:
    """Return whether the processes of a pilot end with it, how soon, and what they can do to the node."""
    return [_tracking(config), _memory(config), _kill_wait(config), _unkillable(config)]


def outliving(config: Shown) -> str:
    """Return the daemon's warning at its start that processes can outlive their pilots; "" if not."""
    kind = config.get("ProctrackType", CGROUP)
    if kind == CGROUP:
        return ""
    return (
        f"ProctrackType is {kind}: a user's process can outlive its pilot and keep its node from main jobs; "
        f"set {CGROUP}"
    )


def _tracking(config: Shown) -> Finding:
    check, kind = "slurm ProctrackType", config.get("ProctrackType", "unknown")
    if kind == CGROUP:
        return ok(check, f"{kind}: no process outlives its pilot")
    return warning(
        check,
        f"{kind}: a process that leaves its parent and its session is not found when its pilot ends, and "
        "goes on beside the next main job on the node, with its memory and GPUs; it can also keep Slurm from "
        "seeing the pilot's end, so that main jobs wait and Slurm drains the node",
        f"set ProctrackType={CGROUP}, and have slurmd restarted on all nodes",
    )


def _memory(config: Shown) -> Finding:
    check, plugins = "slurm memory", config.get("TaskPlugin", "unknown")
    if "cgroup" not in plugins:
        said = f"TaskPlugin={plugins}"
    elif config.get("ConstrainRAMSpace", "no").lower() != "yes":
        said = f"ConstrainRAMSpace={config.get('ConstrainRAMSpace', 'no')} in cgroup.conf"
    else:
        return ok(check, "cgroups bound the memory of jobs")
    return warning(
        check,
        f"{said}: nothing bounds the memory of a job, and a script that fills its node's can have the kernel "
        "kill slurmd there, which takes the node from main jobs, too",
        "set TaskPlugin=task/affinity,task/cgroup, and ConstrainRAMSpace=yes in cgroup.conf",
    )


def _kill_wait(config: Shown) -> Finding:
    check, seconds = "slurm KillWait", number(config, "KillWait")
    said = (
        f"{seconds:.0f} s: so long a main job can wait for a pilot that Slurm itself preempts, if its user's "
    )
    said += "processes ignore SIGTERM"
    if seconds <= KILL_WAIT_S:
        return ok(check, said)
    return warning(check, said, f"set KillWait={KILL_WAIT_S:.0f} or less; all jobs have that time to end")


def _unkillable(config: Shown) -> Finding:
    check, seconds = "slurm UnkillableStepTimeout", number(config, "UnkillableStepTimeout")
    program = config.get("UnkillableStepProgram")
    said = f"{seconds:.0f} s: Slurm drains a node where killed processes take longer to end"
    if named(program):
        said += f", and runs {program}"
    if seconds >= UNKILLABLE_S:
        return ok(check, said)
    return warning(
        check,
        f"{said}; those that wait for a slow file system or a GPU's driver do, and pilots end often",
        f"set UnkillableStepTimeout={UNKILLABLE_S:.0f} or more: main jobs lose drained nodes until an admin "
        "resumes them",
    )
