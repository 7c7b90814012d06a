"""The allocators of a dedicated cluster by name, and `goodput` as it decides there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from bftrainer.allocate.goodput.counts import GoodputAim, GoodputCandidate, GoodputObjective, choose_counts
from bftrainer.allocate.goodput.places import place
from bftrainer.performance.curve import Floats
from bftrainer.performance.goodput import GoodputModel
from bftrainer.replay.dedicated.baselines import Optimus, Tiresias
from bftrainer.replay.dedicated.cluster import ClusterPolicy, ClusterShape, Held
from bftrainer.replay.dedicated.job import RunningJob

POWER, POWER_SHARED = 0.5, 0.7
"""Powers of speed-ups: flatter where a job has still to find out how it scales."""
LEVEL_GPU_S = 60.0
"""Attained service (GPU-seconds) counts in levels, each twice the one before."""


def policy_of(
    name: str,
    *,
    declared: bool = False,
    shared: bool = False,
    power: float | None = None,
    aim: GoodputAim = GoodputAim.RANKED,
) -> ClusterPolicy:
    """A new policy of this name: tiresias, optimus or goodput; the settings are those of goodput.

    `declared`: jobs have said how many epochs they train. `shared`: they share what they measure.
    """
    if name == "tiresias":
        return Tiresias()
    if name == "optimus":
        return Optimus()
    if power is None:
        power = POWER_SHARED if shared else POWER
    return Goodput(GoodputObjective(aim=aim, power=power), declared=declared)


class Goodput:
    """Workers by goodput, from what each job has measured so far."""

    fixes_workers = fixes_batch = False

    def __init__(self, objective: GoodputObjective, *, declared: bool) -> None:
        self._objective = objective
        self._declared = declared

    def decide(self, now: float, jobs: Sequence[RunningJob], held: Held, cluster: ClusterShape) -> Held:
        """Workers of the highest objective, on as few nodes as there is room for."""
        candidates = [self._candidate(job, now, len(held.get(job.job.name, ())), cluster) for job in jobs]
        counts = choose_counts(candidates, cluster.size, self._objective)
        names = (job.job.name for job in jobs)
        return place(dict(zip(names, counts, strict=True)), held, cluster.nodes, cluster.gpus)

    def _candidate(self, job: RunningJob, now: float, held: int, cluster: ClusterShape) -> GoodputCandidate:
        """A job as the objective sees it, expected to go on for as long as it has been there.

        It is ranked by the time that the rest takes on one GPU, or by its level of attained service.
        """
        if self._declared:
            work = job.remaining / job.speed_alone if job.speed_alone else 0.0
        else:
            work = float(service_level(job.gpu_s))
        return GoodputCandidate(speedups(job, cluster), held, work, now - job.job.submitted, job.gpu_s)


def service_level(gpu_s: float) -> int:
    """The level of attained service, in GPU-seconds: two long jobs on one level do not take turns."""
    return math.floor(math.log2(1 + gpu_s / LEVEL_GPU_S))


def speedups(job: RunningJob, cluster: ClusterShape) -> Floats:
    """Speed-ups on 0 to as many workers as the job may have; one worker where nothing was measured yet."""
    limits = job.program.limits
    most = job.workers or job.profile.most_workers(min(cluster.size, limits.most // limits.local_least))
    if most == 1 or job.model is None:
        return np.array([0.0, 1.0])
    return _table(job.model, most, cluster.gpus)


@lru_cache(maxsize=4096)
def _table(model: GoodputModel, most: int, gpus: int) -> Floats:
    """Speed-ups on 0 to `most` workers of the fewest nodes; a model stays for many decisions."""
    workers = np.arange(1, most + 1)
    return np.concatenate([[0.0], model.speedup(-(-workers // gpus), workers)])
