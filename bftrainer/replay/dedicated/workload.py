"""The jobs of a dedicated cluster: a CSV `name,time,application,num_replicas,batch_size`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from bftrainer.replay.dedicated.programs import NAME, MeasuredProgram, ProfileError, read_program
from bftrainer.replay.workload import WorkloadError, rows

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
FIXED = frozenset({"ncf"})
"""Programs that keep the user's workers and batch under every allocator, as in the published replays."""
MOST_JOBS = 10_000
"""A workload has no more: each is simulated tick by tick."""
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
        raise WorkloadError(f"{path}: no job in it")
    if len(table) > MOST_JOBS:
        raise WorkloadError(f"{path}: {len(table):,} jobs; at most {MOST_JOBS:,} are replayed: give fewer")
    programs: dict[str, MeasuredProgram] = {}
    found: dict[str, SubmittedJob] = {}
    for number, row in table:
        name, program = row["name"], row["application"]
        if name in found:
            raise WorkloadError(f"{path}:{number}: a second job {name!r}; give each a name of its own")
        if program not in programs:
            programs[program] = _program(profiles, program, f"{path}:{number}")
        try:
            job = SubmittedJob(
                name, float(row["time"]), programs[program], int(row["num_replicas"]), int(row["batch_size"])
            )
        except ValueError:
            raise WorkloadError(f"{path}:{number}: time, num_replicas, batch_size must be numbers") from None
        _check(job, f"{path}:{number}")
        found[name] = job
    return list(found.values())


def _program(profiles: Path, name: str, where: str) -> MeasuredProgram:
    folder = profiles / name
    if not NAME.fullmatch(name) or not folder.is_dir():
        have = ", ".join(sorted(path.name for path in profiles.iterdir() if path.is_dir())[:20]) or "none"
        raise ProfileError(f"{where}: no measurements of {name!r} in {profiles} (there are: {have})")
    return read_program(folder)


def _check(job: SubmittedJob, where: str) -> None:
    """Raise `WorkloadError` for a job that could not run."""
    limits = job.program.limits
    if not (0 <= job.submitted <= LATEST_S and math.isfinite(job.submitted)):
        raise WorkloadError(
            f"{where}: time {job.submitted}; give seconds from the begin, 0 to {LATEST_S:.0f}"
        )
    if not limits.initial <= job.batch <= limits.most:
        raise WorkloadError(
            f"{where}: batch_size {job.batch}; {job.program.name} was measured with {limits.initial} to "
            f"{limits.most}"
        )
    if not 1 <= job.workers <= job.batch // limits.local_least:
        raise WorkloadError(
            f"{where}: num_replicas {job.workers}; give 1 to {job.batch // limits.local_least}: a worker "
            f"takes {limits.local_least} samples or more of the batch {job.batch}"
        )
