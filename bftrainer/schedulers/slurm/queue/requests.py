"""GPUs that jobs ask for in all, for each socket or for each task, rather than for each node. Pure.

squeue prints one of two formats. The short one has no fields for these, the long one none for the nodes that
a job excludes. So a second call asks for them, of jobs that wait alone, and only where nodes have GPUs. Types
of GPUs can hold line breaks of their users' own, so its lines need a mark, too.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bftrainer.errors import SchedulerError
from bftrainer.schedulers.shared.command import CommandOutput
from bftrainer.schedulers.slurm import values
from bftrainer.schedulers.slurm.dialect import SEPARATOR, in_words
from bftrainer.schedulers.slurm.queue import gpus
from bftrainer.schedulers.slurm.rows import SlurmJobRow

FIELDS = ("tres-per-job", "tres-per-socket", "tres-per-task", "sct", "NumTasks")
WORDS = ("squeue", "-h", "-a", "-t", "PENDING")
UNKNOWN = (
    "squeue does not say in its long format which GPUs jobs wait for ({}): for those that ask by --gpus, "
    "--gpus-per-socket or --gpus-per-task no GPU is given back before Slurm plans their start"
)


@dataclass(frozen=True, slots=True)
class AskedGpus:
    """A job's request in all, for each socket and for each task, its sockets on a node, and its number of
    tasks."""

    in_all: str
    each_socket: str
    each_task: str
    sockets: int
    tasks: int


async def ask(
    run: Callable[..., Awaitable[CommandOutput]],
    apart: Callable[[Callable[[], dict[str, AskedGpus]]], Awaitable[dict[str, AskedGpus]]],
) -> tuple[Mapping[str, AskedGpus], str]:
    """Return waiting jobs' requests, by number, and why these are not known; "" if they are. `run` runs a
    command with more environment, `apart` reads what it printed in a thread."""
    mark = secrets.token_hex(8)
    try:
        done = await run(WORDS, SQUEUE_FORMAT2=squeue_format(mark))
    except SchedulerError as error:
        return {}, UNKNOWN.format(error)
    if done.code != 0:
        return {}, UNKNOWN.format(done.words)
    return await apart(lambda: requests(done.raw, mark)), ""


def squeue_format(mark: str) -> str:
    """Return the value of SQUEUE_FORMAT2; `mark` as of `Dialect.request`, behind the number of the job."""
    return ",".join(in_words(mark, "JobArrayID", *FIELDS))


def requests(printed: bytes, mark: str) -> dict[str, AskedGpus]:
    """Return the requests, by number, of jobs that ask for more than squeue's short format says."""
    found: dict[str, AskedGpus] = {}
    between = re.escape(f"{SEPARATOR}{mark}{SEPARATOR}".encode())
    for match in re.finditer(rb"(?m)^([^\n\x1f]*)" + between + rb"(.*)$", printed):
        fields = match[2].decode(errors="replace").split(SEPARATOR)
        if len(fields) <= len(FIELDS) or not any(map(values.plain, fields[:3])):
            continue
        identity = match[1].decode(errors="replace").strip().partition("_[")[0]
        in_all, socket, task = map(values.plain, fields[:3])
        sockets, tasks = (max(1, values.count(field)) for field in fields[3:5])
        found[identity] = AskedGpus(in_all, socket, task, sockets, tasks)
    return found


def completed(jobs: Iterable[SlurmJobRow], asked: Mapping[str, AskedGpus]) -> tuple[SlurmJobRow, ...]:
    """The jobs with the GPUs that they ask for in any way. What one asks for by node counts first."""
    return tuple(
        _completed(job, asked[job.id]) if job.id in asked and not (job.gpus or job.gpu_parts) else job
        for job in jobs
    )


def _completed(job: SlurmJobRow, request: AskedGpus) -> SlurmJobRow:
    count = max(1, job.count)
    for text, least in (
        (request.each_task, _even(request.tasks, count)),
        (request.each_socket, request.sockets),
    ):
        kinds, parts = gpus.kinds(text), gpus.parts(text)
        if kinds or parts:
            return replace(
                job,
                gpus=tuple((kind, least * each) for kind, each in kinds),
                gpu_parts=tuple((name, kind, least * each) for name, kind, each in parts),
            )
    in_all = gpus.kinds(request.in_all)
    return replace(job, gpus=tuple((kind, _even(all_, count)) for kind, all_ in in_all), all_gpus=in_all)


def spread(job: SlurmJobRow, most: int) -> list[SlurmJobRow]:
    """A job as it is, and if it asks for GPUs in all on more nodes than it names, `most` at most, with fewer
    GPUs on each."""
    found = [job]
    each = job.gpus
    for count in range(job.count + 1, min(most, gpus.total(job.all_gpus)) + 1):
        fewer = tuple((kind, _even(all_, count)) for kind, all_ in job.all_gpus)
        if fewer != each:
            each = fewer
            found.append(replace(job, count=count, gpus=each))
    return found


def _even(all_: int, count: int) -> int:
    return -(-all_ // count)
