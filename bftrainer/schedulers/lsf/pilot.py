"""A pilot as LSF gets it: the command line of bsub, the script on its standard input, and the secret. Pure.

`bjobs -l` shows every user the script of every job. So the secret is not in it: the job inherits it from
bsub's environment, which no command shows, and the script removes it there before it starts the agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer.errors import NoRoomError, SchedulerError
from bftrainer.model.machine import Pilot, Slot
from bftrainer.schedulers.lsf.rows import EndKind, LsfJobEnd
from bftrainer.schedulers.lsf.values import HOST_NAME
from bftrainer.schedulers.shared.instance import PREFIX, TAG, job_name
from bftrainer.schedulers.shared.pilot_job import PilotJob

START_S = 20.0
"""Seconds by which a pilot's run limit ends before its hole: LSF starts jobs in turns, some seconds apart."""
NAME = re.compile(
    rf"{PREFIX}(?P<instance>[0-9a-f]{{8}})-(?P<tag>{TAG.pattern})(?:\.(?P<gpu>0|[1-9][0-9]{{0,3}}))?"
    rf"-(?P<host>{HOST_NAME.pattern})"
)
"""The names of pilots, of any daemon: instance, tag, the number of a single GPU, and the host that each is
for. Every other job is a main job. They have no character that a site's own bsub could stumble over."""
SECRET = "BFTRAINER_PILOT_SECRET"  # noqa: S105  the name of a variable
GPU_OPTION = "-gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class LsfPilotJob(PilotJob):
    """Facts that all pilots on LSF share. `submission` is plain, easy or expert. `gpus`: each has a single
    GPU. `exec_prefix` has to keep the variable `SECRET` (sudo: env_keep)."""

    submission: str = "plain"
    queue: str = ""
    project: str = ""
    launch_slots: int = 0
    gpus: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """The parts of a pilot's job name: whose it is, and the host or GPU that it is for."""

    instance: str
    tag: str
    slot: Slot


def name_of(instance: str, pilot: Pilot) -> str:
    """The name of a pilot's job, such as bftrainer-INSTANCE-TAG-h1, or with GPU 2 of a host
    bftrainer-INSTANCE-TAG.2-h1."""
    slot = Slot.of(pilot.node)
    number = "" if slot.gpu is None else f".{slot.gpu}"
    return f"{job_name(instance, pilot.tag)}{number}-{slot.node}"


def named(name: str) -> Named | None:
    """Parse a job's name; return None if it is not a pilot's."""
    found = NAME.fullmatch(name)
    if found is None:
        return None
    slot = Slot(found["host"], None if found["gpu"] is None else int(found["gpu"]))
    return Named(found["instance"], found["tag"], slot)


def command(job: LsfPilotJob, pilot: Pilot, slots: int, limit_s: float | None, *, gpus: int = 0) -> list[str]:
    """Return the command line of bsub for a pilot with these slots and GPUs, of its host or of a single GPU
    there; its script comes on its standard input. Plain LSF is asked for the GPUs, unless the site's own
    options ask for some; on Summit the script is.

    Raises:
        SchedulerError: a name that no shell or scheduler should see, or a hole that is too short.
        NoRoomError: it is to have a single GPU of a host that no poll has shown.
    """
    slot = Slot.of(pilot.node)
    is_gpu = slot.gpu is not None
    if not TAG.fullmatch(pilot.tag):
        raise SchedulerError(f"{pilot.tag!r} is no name of a tag")
    if not HOST_NAME.fullmatch(slot.node) or str(slot) != pilot.node or (is_gpu and not job.gpus):
        raise SchedulerError(f"{pilot.node!r} is no name of a host{' or GPU' if job.gpus else ''}")
    if job.gpus and not (is_gpu and slots and gpus):
        raise NoRoomError(
            f"{pilot.node}: no such GPU is known to be free, and pilots have single ones here, such as h1:0"
        )
    return [
        "bsub",
        *("-J", name_of(job.instance, pilot)),
        *(("-q", job.queue) if job.queue else ()),
        *(("-P", job.project) if job.project else ()),
        *_where(job, slot.node, slots),
        *_gpus(job, gpus),
        *("-W", str(job.minutes(limit_s, start_s=START_S))),
        "-rn",  # a pilot that was preempted does not come back by itself
        *("-o", job.output(pilot)),
        *job.options,
    ]


def _where(job: LsfPilotJob, host: str, slots: int) -> tuple[str, ...]:
    """Return options for `slots` slots of one host: in plain LSF all of it, or those of a single GPU; in
    Summit's modes a whole one as these ask for it. The easy one knows no hosts."""
    if job.submission == "easy":
        return ("-nnodes", "1")
    if job.submission == "expert":
        launch = f"{job.launch_slots or 1}*{{select[LN]span[hosts=1]}}"
        compute = f"{slots}*{{select[CN&&hname=='{host}']span[ptile={slots}]}}"
        return ("-csm", "y", "-n", str(slots + (job.launch_slots or 1)), "-R", f"{launch}+{compute}")
    return ("-n", str(slots), "-R", "span[hosts=1]", "-m", host)


def _gpus(job: LsfPilotJob, count: int) -> tuple[str, ...]:
    if not count or job.submission != "plain" or GPU_OPTION in job.options:
        return ()
    return (GPU_OPTION, f"num={count}:j_exclusive=yes")


def secretly(secret: str) -> Mapping[str, str]:
    """Return the variables that bsub needs in addition."""
    return {SECRET: secret}


def failure(job: PilotJob, pilot: Pilot, end: LsfJobEnd) -> str:
    """Return why a pilot's job has failed and where to look; "" if it has not: it was killed or preempted,
    has reached its run limit, or LSF no longer knows it."""
    if end.kind is not EndKind.FAILED:
        return ""
    return job.failure(pilot, end.code, end.words or f"exit code {end.code}")
