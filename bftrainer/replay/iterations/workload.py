"""The jobs of Jigsaw's evaluation (section 4.2): lengths from the log of Philly, models from table 2."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bftrainer.iterations.model import IterationJob
from bftrainer.iterations.profiles import MODELS, MeasuredModel
from bftrainer.messages.files.replays import TOO_LITTLE_WORK
from bftrainer.messages.files.tables import NOTHING_THERE
from bftrainer.replay.workload import WorkloadError, rows, wrong

SHARES = {1: 0.5, 2: 0.1, 4: 0.2, 8: 0.15, 16: 0.05}
"""The published share of jobs by workers."""
COLUMNS = ("duration", "num_gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class MixOptions:
    """Parameters of a workload, with choices where the paper leaves them open.

    Attributes:
        jobs: How many there are.
        every_s: Time between two arrivals (s).
        devices: Number of devices.
        hours: Work with full back-propagation, per device.
        longest_hours: No job lasts longer, if its workers all run at once.
        gbit_s: Bandwidth of the gradients' exchange; None: it takes no time.
    """

    jobs: int = 500
    every_s: float = 30.0
    devices: int = 45
    hours: float = 10.0
    longest_hours: float = 2.5
    gbit_s: float | None = None


@dataclass(frozen=True, slots=True)
class MixedJob:
    """A job before it is decided how far its workers go back: arrival (s), model, workers and iterations."""

    arrival: float
    model: MeasuredModel
    workers: int
    iterations: int


def read_durations(path: Path) -> Mapping[int, tuple[float, ...]]:
    """Durations of jobs of the log (s), by GPUs; only with numbers of GPUs that the mix has.

    Raises:
        WorkloadError: no such log, or a value that cannot be; it names the line.
    """
    found: dict[int, list[float]] = {workers: [] for workers in SHARES}
    for number, row in rows(path, COLUMNS, "the log of Philly"):
        try:
            seconds, gpus = float(row["duration"]), float(row["num_gpus"])
        except ValueError:
            given = f"{row['duration']}, {row['num_gpus']}"
            raise WorkloadError(wrong(f"{path}:{number}", "duration, num_gpus", given, "numbers")) from None
        if not (math.isfinite(seconds) and 0 <= seconds <= 1e9):
            raise WorkloadError(wrong(f"{path}:{number}", "duration", seconds, "0 to 1e9 seconds"))
        if gpus in found and seconds > 0:
            found[int(gpus)].append(seconds)
    if missing := [workers for workers, seconds in found.items() if not seconds]:
        said = NOTHING_THERE.say(what=f"job with {missing[0]} GPUs", some="some, as the mix has such jobs")
        raise WorkloadError(f"{path}: {said}")
    return {workers: tuple(seconds) for workers, seconds in found.items()}


def mix(durations: Mapping[int, tuple[float, ...]], options: MixOptions, seed: int) -> list[MixedJob]:
    """Draw the jobs of a seed: workers in the published shares, models evenly, lengths from the log.

    Lengths are scaled, and the longest cut, until the work is as much as asked for.

    Raises:
        WorkloadError: the jobs are too few and too short for this work.
    """
    rng = np.random.default_rng(seed)
    edges = np.rint(np.cumsum([0.0, *SHARES.values()]) * options.jobs).astype(int)
    workers = rng.permutation(np.repeat(list(SHARES), np.diff(edges)))
    models = [MODELS[number] for number in rng.integers(len(MODELS), size=options.jobs)]
    lengths = np.array([rng.choice(durations[count]) for count in workers])
    wanted, most = options.hours * 3600 * options.devices, options.longest_hours * 3600
    if (workers * most).sum() < wanted:
        raise WorkloadError(
            TOO_LITTLE_WORK.say(
                jobs=options.jobs,
                longest_h=options.longest_hours,
                hours=options.hours,
                devices=options.devices,
            )
        )
    for _ in range(200):  # each time those that are not cut yet grow
        lengths = np.minimum(lengths * (wanted / (workers * lengths).sum()), most)
    iterations = [max(1, round(s / model.task().seconds)) for s, model in zip(lengths, models, strict=True)]
    drawn = zip(models, workers.tolist(), iterations, strict=True)
    return [MixedJob(place * options.every_s, *job) for place, job in enumerate(drawn)]


def jobs_of(mixed: Sequence[MixedJob], options: MixOptions, *, partial: bool) -> list[IterationJob]:
    """Jobs with full or partial back-propagation; gradients go to a server, parameters come back."""
    return [
        IterationJob(
            arrival=job.arrival,
            tasks=job.model.tasks(job.workers, partial=partial),
            iterations=job.iterations,
            model_gb=job.model.model_gb,
            exchange_s=2 * 8 * job.model.model_gb / options.gbit_s
            if options.gbit_s and job.workers > 1
            else 0.0,
        )
        for job in mixed
    ]
