"""The jobs of a dedicated cluster: a CSV `name,time,application,num_replicas,batch_size`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from bftrainer.messages.files.replays import NO_MEASUREMENTS_OF
from bftrainer.messages.files.tables import NOTHING_THERE, SECOND, TOO_MANY
from bftrainer.replay.dedicated.programs import NAME, MeasuredProgram, ProfileError, read_program
from bftrainer.replay.workload import WorkloadError, rows, wrong

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
FIXED = frozenset({"ncf"})
"""Programs that keep the user's workers and batch under every allocator, as in the published replays."""
MOST_JOBS = 10_000
"""Most jobs of a workload: each is simulated tick by tick."""
LATEST_S = 366 * 86_400.0
"""No job is submitted later, in seconds from the replay's begin."""


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job: its submission (s from the begin), and the workers and global batch that its user asks for."""

    name: str
    submitted: float
    program: MeasuredProgram
    workers: int
    batch: int


def read_jobs(path: Path, profiles: Path) -> list[SubmittedJob]:
    """The jobs of a workload in its order; each program's measurements are read once from `profiles`.

    Raises:
        WorkloadError: no such table, or a value that cannot be; it names the line.
        ProfileError: a program without measurements, or ones that cannot be used.
    """
    table = rows(path, COLUMNS, "a workload of Pollux")
    if not table:
        said = NOTHING_THERE.say(what="job", some="some")
        raise WorkloadError(f"{path}: {said}")
    if len(table) > MOST_JOBS:
        said = TOO_MANY.say(count=len(table), what="jobs", most=MOST_JOBS)
        raise WorkloadError(f"{path}: {said}")
    programs: dict[str, MeasuredProgram] = {}
    found: dict[str, SubmittedJob] = {}
    for number, row in table:
        name, program = row["name"], row["application"]
        if name in found:
            raise WorkloadError(f"{path}:{number}: {SECOND.say(what='job', name=name)}")
        if program not in programs:
            programs[program] = _program(profiles, program, f"{path}:{number}")
        try:
            job = SubmittedJob(
                name, float(row["time"]), programs[program], int(row["num_replicas"]), int(row["batch_size"])
            )
        except ValueError:
            columns = ("time", "num_replicas", "batch_size")
            given = ", ".join(row[column] for column in columns)
            raise WorkloadError(wrong(f"{path}:{number}", ", ".join(columns), given, "numbers")) from None
        _check(job, f"{path}:{number}")
        found[name] = job
    return list(found.values())


def _program(profiles: Path, name: str, where: str) -> MeasuredProgram:
    folder = profiles / name
    if not NAME.fullmatch(name) or not folder.is_dir():
        have = ", ".join(sorted(path.name for path in profiles.iterdir() if path.is_dir())[:20]) or "none"
        said = NO_MEASUREMENTS_OF.say(name=name, folder=profiles, known=have)
        raise ProfileError(f"{where}: {said}")
    return read_program(folder)


def _check(job: SubmittedJob, where: str) -> None:
    """Raise `WorkloadError` for a job that could not run."""
    limits = job.program.limits
    if not (0 <= job.submitted <= LATEST_S and math.isfinite(job.submitted)):
        wanted = f"seconds from the begin, 0 to {LATEST_S:.0f}"
        raise WorkloadError(wrong(where, "time", job.submitted, wanted))
    if not limits.initial <= job.batch <= limits.most:
        wanted = f"{limits.initial} to {limits.most}, with which {job.program.name} was measured"
        raise WorkloadError(wrong(where, "batch_size", job.batch, wanted))
    if not 1 <= job.workers <= job.batch // limits.local_least:
        wanted = (
            f"1 to {job.batch // limits.local_least}: a worker takes {limits.local_least} samples or more of "
            f"the batch {job.batch}"
        )
        raise WorkloadError(wrong(where, "num_replicas", job.workers, wanted))
