"""A pilot as LSF gets it: the command line of bsub, the script on its standard input, and the secret. Pure.

`bjobs -l` shows every user the script of every job. So the secret is not in it: the job inherits it from
bsub's environment, which no command shows, and the script removes it there before it starts the agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import NoRoomError, SchedulerError
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.lsf.rows import End, EndKind
from bftrainer.schedulers.lsf.values import HOST_NAME
from bftrainer.schedulers.shared.names import PREFIX, TAG, job_name
from bftrainer.schedulers.shared.template import Template

MINUTE_S = 60.0
START_S = 20.0
"""A pilot's run limit ends so long before its hole does: LSF starts jobs in turns, some seconds apart."""
NAME = re.compile(rf"{PREFIX}([0-9a-f]{{8}})-({TAG.pattern})-({HOST_NAME.pattern})")
"""The names of pilots, of any daemon: instance, tag and the host that each is for. Every other job is a main
job."""
SECRET = "BFTRAINER_PILOT_SECRET"  # noqa: S105  the name of a variable
GPU_OPTION = "-gpu"
NOT_FOUND = 127
"""How a shell says that there is no such program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotJob:
    """What all pilots have in common. `max_s` is the longest run limit of any; `window`: LSF does not
    preempt, so none may last longer than its hole. `submission` is plain, easy or expert. `exec_prefix` has
    to keep the variable `SECRET` (sudo: env_keep)."""

    instance: str
    template: Template
    python: str
    daemon: str  # where agents find it: host:port or a socket's path
    orphan_s: float
    log_dir: Path
    max_s: float
    window: bool = False
    submission: str = "plain"
    queue: str = ""
    project: str = ""
    options: tuple[str, ...] = ()
    exec_prefix: tuple[str, ...] = ()
    launch_slots: int = 0


def limit_minutes(job: PilotJob, limit_s: float | None) -> int:
    """The run limit in LSF's whole minutes, never longer than the hole.

    Raises:
        NoRoomError: without preemption a pilot must end by itself before the hole does.
    """
    hole_s = job.max_s if limit_s is None else min(job.max_s, limit_s - START_S)
    minutes = int(hole_s // MINUTE_S)
    if minutes < 1 and job.window:
        raise NoRoomError(
            f"no run limit fits: there are {hole_s:.0f} s besides {START_S:.0f} s to start, and LSF counts "
            "in minutes"
        )
    return max(1, minutes)


def log_of(job: PilotJob, pilot: Pilot) -> Path:
    """The file that a pilot prints to; a pilot of another user may not write into our folder."""
    return Path("/dev/null") if pilot.user else job.log_dir / f"agent-{pilot.node}.log"


def command(job: PilotJob, pilot: Pilot, slots: int, limit_s: float | None, *, gpus: int = 0) -> list[str]:
    """The command line of bsub for a pilot on a host of so many slots and GPUs; its script comes on its
    standard input. Plain LSF is asked for all GPUs, unless the site's own options ask for some; on Summit
    the script is, see `script`.

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
        *("-W", str(limit_minutes(job, limit_s))),
        "-rn",  # a pilot that was preempted does not come back by itself
        *("-o", str(log_of(job, pilot)).replace("%", "%%")),  # LSF fills in what follows a %
        *job.options,
    ]


def _where(job: PilotJob, host: str, slots: int) -> tuple[str, ...]:
    """A whole host: in plain LSF all slots of one, in Summit's modes as these ask for it. The easy one knows
    no hosts."""
    if job.submission == "easy":
        return ("-nnodes", "1")
    if job.submission == "expert":
        launch = f"{job.launch_slots or 1}*{{select[LN]span[hosts=1]}}"
        compute = f"{slots}*{{select[CN&&hname=='{host}']span[ptile={slots}]}}"
        return ("-csm", "y", "-n", str(slots + (job.launch_slots or 1)), "-R", f"{launch}+{compute}")
    return ("-n", str(slots), "-R", "span[hosts=1]", "-m", host)


def _gpus(job: PilotJob, count: int) -> tuple[str, ...]:
    if not count or job.submission != "plain" or GPU_OPTION in job.options:
        return ()
    return (GPU_OPTION, f"num={count}:j_exclusive=yes")


def script(job: PilotJob, pilot: Pilot, *, slots: int, gpus: int) -> str:
    """The job's script, which on Summit starts the agent with all slots and GPUs of the host.

    Raises:
        SchedulerError: the template asks for a value that there is not.
    """
    return job.template.render(
        node=pilot.node,
        tag=pilot.tag,
        user=pilot.user,
        python=job.python,
        daemon=job.daemon,
        orphan_s=f"{job.orphan_s:g}",
        slots=str(slots),
        gpus=str(gpus),
    )


def secretly(secret: str) -> Mapping[str, str]:
    """What bsub's environment has to have besides."""
    return {SECRET: secret}


def failure(job: PilotJob, pilot: Pilot, end: End) -> str:
    """Why a pilot's job has failed and where to look; "" if it has not: it was killed or preempted, has
    reached its run limit, or LSF no longer knows it."""
    if end.kind is not EndKind.FAILED:
        return ""
    if end.code == NOT_FOUND:
        return f"its job failed: there is no {job.python} on {pilot.node}; see pilot_python"
    said = f"its job failed: {end.words or f'exit code {end.code}'}"
    if pilot.user:
        return f"{said}; try there, as {pilot.user}: {job.python} -m bftrainer.agent --help"
    return f"{said}; see {log_of(job, pilot)}"
