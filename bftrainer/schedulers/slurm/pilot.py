"""A pilot as Slurm gets it: the command line of sbatch and the script on its standard input. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer.errors import NoRoomError, SchedulerError
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.shared.instance import TAG, job_name
from bftrainer.schedulers.shared.pilot_job import MINUTE_S, PilotJob
from bftrainer.schedulers.slurm.queue.gpus import kinds, option
from bftrainer.schedulers.slurm.queue.resources import Remaining
from bftrainer.schedulers.slurm.rows import SlurmJobEnd
from bftrainer.schedulers.slurm.text import NODE_NAME
from bftrainer.settings.batch.slurm import asks_for_gpus

START_S = 15.0
"""Seconds by which a pilot's time limit ends before its hole, as Slurm starts the job a little later."""
SHORTEST_S = MINUTE_S + START_S
"""No hole that is shorter has room for a pilot: Slurm's shortest limit is a minute."""
FAILED = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPilotJob(PilotJob):
    """Facts that all pilots on Slurm share. `parts`: some have a part of a node; `gpus`: each has a single
    GPU. `exec_prefix` is to keep SLURM_CONF where that is set (sudo: env_keep). To put `env SLURM_CONF=...`
    before the command would need a rule that allows env, and with it every program."""

    partition: str = ""
    qos: str = ""
    account: str = ""
    parts: bool = False
    gpus: bool = False


@dataclass(frozen=True, slots=True)
class PilotResources:
    """Resources for a pilot on its node, as of the last poll; the defaults mean that it is not known.

    Attributes:
        max_s: The longest time limit of the partition.
        gres: The node's generic resources, as Slurm lists them.
        part: The pilot's part of the node; None: all of it.
        share: The share of its machine's cores: several nodes may be one machine.
    """

    max_s: float | None = None
    gres: str = ""
    part: Remaining | None = None
    share: float = 1.0


def command(
    job: SlurmPilotJob,
    pilot: Pilot,
    limit_s: float | None,
    room: PilotResources = PilotResources(),
    cluster: str = "",
) -> list[str]:
    """The command line of sbatch, whose script comes on its standard input. It asks for the whole node with
    all its GPUs, unless the site's own options ask for some; or for the part of it that the room has.
    `cluster` is ours where it is in a federation, whose other clusters would else be offered the job, too.

    Raises:
        SchedulerError: a name that no shell or scheduler should see, or a hole that is too short.
        NoRoomError: no poll has shown what is free for a single GPU of the node.
    """
    node = node_of(pilot.node)
    for what, value, fit in (("node", node, NODE_NAME), ("tag", pilot.tag, TAG)):
        if not fit.fullmatch(value):
            raise SchedulerError(f"{value!r} is no name of a {what}")
    if job.gpus and room.part is None:
        raise NoRoomError(
            f"{pilot.node}: no such GPU is known to be free, and pilots have single ones here, such as n1:0"
        )
    minutes = job.minutes(limit_s, start_s=START_S, most_s=room.max_s)
    given = {
        "job-name": job_name(job.instance, pilot.tag, pilot.node),
        "comment": f"bftrainer pilot {pilot.tag}",
        "clusters": cluster,
        "partition": job.partition,
        "qos": job.qos,
        "account": job.account,
        "nodes": "1",
        "ntasks": "1",
        "nodelist": node,
        "cpus-per-task": "" if room.part is None else str(room.part.cpus),
        "mem": "0" if room.part is None else f"{room.part.memory_mb}M",  # 0: all of it
        "gres": "" if own_gpus(job.options) else option(room.part.gpus if room.part else kinds(room.gres)),
        "time": str(minutes),
        "deadline": "" if limit_s is None else f"now+{max(limit_s, 60 * minutes + START_S):.0f}",
        "chdir": "/",
        "output": job.output(pilot),
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
    """Return whether options of sbatch ask for GPUs or other generic resources."""
    return any(map(asks_for_gpus, options))


def failure(job: PilotJob, pilot: Pilot, end: SlurmJobEnd) -> str:
    """Return why a pilot's job has failed and where to look; "" if it has not. It may be cancelled or
    preempted before its agent reports: that is no failure."""
    if not end.code and end.state not in FAILED:
        return ""
    return job.failure(pilot, end.code, f"exit code {end.code}" if end.code else end.reason or end.state)
