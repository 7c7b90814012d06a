"""A pilot as LSF gets it: the command line of bsub, the script on its standard input, and the secret. Pure.

`bjobs -l` shows every user the script of every job. So the secret is not in it: the job inherits it from
bsub's environment, which no command shows, and the script removes it there before it starts the agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer.errors import SchedulerError
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.lsf.rows import End, EndKind
from bftrainer.schedulers.lsf.values import HOST_NAME
from bftrainer.schedulers.shared.names import PREFIX, TAG, job_name
from bftrainer.schedulers.shared.pilot_job import PilotJob

START_S = 20.0
"""A pilot's run limit ends so long before its hole does: LSF starts jobs in turns, some seconds apart."""
NAME = re.compile(rf"{PREFIX}([0-9a-f]{{8}})-({TAG.pattern})-({HOST_NAME.pattern})")
"""The names of pilots, of any daemon: instance, tag and the host that each is for. Every other job is a main
job."""
SECRET = "BFTRAINER_PILOT_SECRET"  # noqa: S105  the name of a variable
GPU_OPTION = "-gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class LsfPilotJob(PilotJob):
    """What all pilots on LSF have in common. `submission` is plain, easy or expert. `exec_prefix` has to keep
    the variable `SECRET` (sudo: env_keep)."""

    submission: str = "plain"
    queue: str = ""
    project: str = ""
    launch_slots: int = 0


def command(job: LsfPilotJob, pilot: Pilot, slots: int, limit_s: float | None, *, gpus: int = 0) -> list[str]:
    """The command line of bsub for a pilot on a host of so many slots and GPUs; its script comes on its
    standard input. Plain LSF is asked for all GPUs, unless the site's own options ask for some; on Summit
    the script is.

    Raises:
        SchedulerError: a name that no shell or scheduler should see, or a hole that is too short.
    """
    for what, value, fit in (("host", pilot.node, HOST_NAME), ("tag", pilot.tag, TAG)):
        if not fit.fullmatch(value):
            raise SchedulerError(f"{value!r} is no name of a {what}")
    return [
        "bsub",
        *("-J", f"{job_name(job.instance, pilot.tag)}-{pilot.node}"),
        *(("-q", job.queue) if job.queue else ()),
        *(("-P", job.project) if job.project else ()),
        *_where(job, pilot.node, slots),
        *_gpus(job, gpus),
        *("-W", str(job.minutes(limit_s, start_s=START_S))),
        "-rn",  # a pilot that was preempted does not come back by itself
        *("-o", job.output(pilot)),
        *job.options,
    ]


def _where(job: LsfPilotJob, host: str, slots: int) -> tuple[str, ...]:
    """A whole host: in plain LSF all slots of one, in Summit's modes as these ask for it. The easy one knows
    no hosts."""
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
    """What bsub's environment has to have besides."""
    return {SECRET: secret}


def failure(job: PilotJob, pilot: Pilot, end: End) -> str:
    """Why a pilot's job has failed and where to look; "" if it has not: it was killed or preempted, has
    reached its run limit, or LSF no longer knows it."""
    if end.kind is not EndKind.FAILED:
        return ""
    return job.failure(pilot, end.code, end.words or f"exit code {end.code}")
