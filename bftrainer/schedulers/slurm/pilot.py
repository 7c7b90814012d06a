"""A pilot as Slurm gets it: the command line of sbatch and the script on its standard input. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import NoRoomError, SchedulerError
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.shared.names import TAG, job_name
from bftrainer.schedulers.shared.template import Template
from bftrainer.schedulers.slurm.gpus import kinds, option
from bftrainer.schedulers.slurm.left import Left
from bftrainer.schedulers.slurm.rows import End
from bftrainer.schedulers.slurm.text import NODE_NAME

MINUTE_S = 60.0
START_S = 15.0
"""A pilot's time limit ends so long before its hole does, as Slurm starts the job a little later."""
SHORTEST_S = MINUTE_S + START_S
"""No hole that is shorter has room for a pilot: Slurm's shortest limit is a minute."""
NOT_FOUND = 127
"""How a shell says that there is no such program."""
FAILED = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"})
GPU_OPTIONS = ("--gres", "--gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotJob:
    """What all pilots have in common. `max_s` is the longest time limit of any; `window`: there is no
    preemption, so none may last longer than its hole. `exec_prefix` is to keep SLURM_CONF where that is set
    (sudo: env_keep). To put `env SLURM_CONF=...` before the command would need a rule that allows env, and
    with it every program."""

    instance: str
    template: Template
    python: str
    daemon: str  # where agents find it: host:port or a socket's path
    orphan_s: float
    log_dir: Path
    max_s: float
    window: bool = False
    partition: str = ""
    qos: str = ""
    account: str = ""
    options: tuple[str, ...] = ()
    exec_prefix: tuple[str, ...] = ()
    parts: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """What there is for a pilot on its node, as of the last poll; the defaults mean that it is not known.

    Attributes:
        max_s: The longest time limit of the partition.
        gres: The node's generic resources, as Slurm lists them.
        part: What the pilot may have of the node; None: all of it.
    """

    max_s: float | None = None
    gres: str = ""
    part: Left | None = None


def limit_minutes(job: PilotJob, limit_s: float | None, partition_max_s: float | None = None) -> int:
    """The time limit in Slurm's whole minutes, never longer than the hole.

    Raises:
        NoRoomError: without preemption a pilot must end by itself before the hole does.
    """
    hole_s = None if limit_s is None else limit_s - START_S
    bounds = [bound for bound in (hole_s, job.max_s, partition_max_s) if bound is not None]
    minutes = int(min(bounds) // MINUTE_S)
    if minutes < 1 and job.window:
        raise NoRoomError(
            f"no time limit fits: there are {min(bounds):.0f} s besides {START_S:.0f} s to start, and Slurm "
            "counts in minutes"
        )
    return max(1, minutes)


def log_of(job: PilotJob, pilot: Pilot) -> Path:
    """The file that a pilot prints to; a pilot of another user may not write into our folder."""
    return Path("/dev/null") if pilot.user else job.log_dir / f"agent-{pilot.node}.log"


def command(job: PilotJob, pilot: Pilot, limit_s: float | None, room: Room = Room()) -> list[str]:
    """The command line of sbatch, whose script comes on its standard input. It asks for the whole node with
    all its GPUs, unless the site's own options ask for some; or for the part of it that the room has.

    Raises:
        SchedulerError: a name that no shell or scheduler should see, or a hole that is too short.
    """
    for what, value, fit in (("node", pilot.node, NODE_NAME), ("tag", pilot.tag, TAG)):
        if not fit.fullmatch(value):
            raise SchedulerError(f"{value!r} is no name of a {what}")
    minutes = limit_minutes(job, limit_s, room.max_s)
    given = {
        "job-name": job_name(job.instance, pilot.tag),
        "comment": f"bftrainer pilot {pilot.tag}",
        "partition": job.partition,
        "qos": job.qos,
        "account": job.account,
        "nodes": "1",
        "ntasks": "1",
        "nodelist": pilot.node,
        "cpus-per-task": "" if room.part is None else str(room.part.cpus),
        "mem": "0" if room.part is None else f"{room.part.memory_mb}M",  # 0: all of it
        "gres": "" if own_gpus(job.options) else option(room.part.gpus if room.part else kinds(room.gres)),
        "time": str(minutes),
        "deadline": "" if limit_s is None else f"now+{max(limit_s, 60 * minutes + START_S):.0f}",
        "chdir": "/",
        "output": str(log_of(job, pilot)).replace("%", "%%"),  # Slurm fills in what follows a %
        "open-mode": "append",
    }
    return [
        "sbatch",
        "--parsable",
        *(("--exclusive",) if room.part is None else ()),
        "--no-requeue",
        *(f"--{name}={value}" for name, value in given.items() if value),
        *job.options,
    ]


def own_gpus(options: Sequence[str]) -> bool:
    """Whether options of sbatch ask for GPUs or other generic resources."""
    return any(option.startswith(GPU_OPTIONS) for option in options)


def script(job: PilotJob, pilot: Pilot, secret: str) -> str:
    """The batch script.

    Raises:
        SchedulerError: the template asks for a value that there is not.
    """
    return job.template.render(
        node=pilot.node,
        tag=pilot.tag,
        user=pilot.user,
        secret=secret,
        python=job.python,
        daemon=job.daemon,
        orphan_s=f"{job.orphan_s:g}",
    )


def failure(job: PilotJob, pilot: Pilot, end: End) -> str:
    """Why a pilot's job has failed and where to look; "" if it has not. It may be cancelled or preempted
    before its agent reports: that is no failure."""
    if end.code == NOT_FOUND:
        return f"its job failed: there is no {job.python} on {pilot.node}; see pilot_python"
    if not end.code and end.state not in FAILED:
        return ""
    said = f"its job failed: {f'exit code {end.code}' if end.code else end.reason or end.state}"
    if pilot.user:
        return f"{said}; try there, as {pilot.user}: {job.python} -m bftrainer.agent --help"
    return f"{said}; see {log_of(job, pilot)}"
