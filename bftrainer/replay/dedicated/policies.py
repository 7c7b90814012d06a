"""The allocators of a dedicated cluster by name, and `goodput` as it decides there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from bftrainer.allocate.goodput.counts import (
    POWER,
    ChangeCost,
    GoodputAim,
    GoodputCandidate,
    GoodputObjective,
    choose_counts,
)
from bftrainer.allocate.goodput.places import place
from bftrainer.allocate.goodput.sizes import UtilityBounds
from bftrainer.allocate.goodput.weights import expected_work
from bftrainer.performance.curve import Floats
from bftrainer.performance.goodput import GoodputModel
from bftrainer.replay.dedicated.baselines import Optimus, Tiresias
from bftrainer.replay.dedicated.cluster import ClusterPolicy, ClusterShape, Held
from bftrainer.replay.dedicated.job import PUBLISHED, RunningJob, filling


def policy_of(
    name: str,
    *,
    declared: bool = False,
    power: float = POWER,
    aim: GoodputAim = GoodputAim.RANKED,
    by_throughput: bool = False,
    utility: UtilityBounds | None = None,
    change_s: float = PUBLISHED.change_s,
    decay: float = 0.5,
    apart: bool = False,
    cost: ChangeCost = ChangeCost.TIME,
) -> ClusterPolicy:
    """A new policy of this name: tiresias, optimus or goodput; the settings are those of goodput.

    `declared`: jobs have said how many epochs they train. `by_throughput`: the largest batches, and speed-ups
    of throughput alone. `utility`: nodes by their use.
    `decay`: of weights by service. `apart`: no two jobs of several nodes meet on one.
    `change_s`: time (s) that a change of a job's workers is taken to cost it, and `cost` how that counts.
    """
    if name == "tiresias":
        return Tiresias()
    if name == "optimus":
        return Optimus()
    objective = GoodputObjective(aim=aim, power=power, restart_s=change_s, decay=decay, cost=cost)
    goodput = Goodput(objective, declared=declared, by_throughput=by_throughput, apart=apart)
    return goodput if utility is None else Autoscaled(goodput, utility)


class Goodput:
    """Workers by goodput, from what each job has measured so far."""

    fixes_workers = fixes_batch = False

    def __init__(
        self, objective: GoodputObjective, *, declared: bool, by_throughput: bool = False, apart: bool = False
    ) -> None:
        self._objective = objective
        self._declared = declared
        self.fills_memory = by_throughput
        self._apart = apart

    def decide(self, now: float, jobs: Sequence[RunningJob], held: Held, cluster: ClusterShape) -> Held:
        """Workers of the highest objective, on as few nodes as there is room for."""
        counts = choose_counts(self._candidates(now, jobs, held, cluster), cluster.size, self._objective)
        names = (job.job.name for job in jobs)
        wanted = dict(zip(names, counts, strict=True))
        return place(wanted, held, cluster.nodes, cluster.gpus, apart=self._apart)

    def utilities(
        self, now: float, jobs: Sequence[RunningJob], held: Held, cluster: ClusterShape
    ) -> list[float]:
        """The utility of 1 to all nodes of the cluster, were workers moved without any cost."""
        candidates = self._candidates(now, jobs, held, cluster)
        found, free = [], replace(self._objective, restart_s=0.0)
        for nodes in range(1, cluster.nodes + 1):
            counts = choose_counts(candidates, nodes * cluster.gpus, free)
            used = (float(one.speedups[count]) for one, count in zip(candidates, counts, strict=True))
            found.append(sum(used) / (nodes * cluster.gpus))
        return found

    def _candidates(
        self, now: float, jobs: Sequence[RunningJob], held: Held, cluster: ClusterShape
    ) -> list[GoodputCandidate]:
        return [self._candidate(job, now, len(held.get(job.job.name, ())), cluster) for job in jobs]

    def _candidate(self, job: RunningJob, now: float, held: int, cluster: ClusterShape) -> GoodputCandidate:
        """A job as the objective sees it, expected to go on for as long as it has been there.

        It is ranked by the time that the rest takes on one GPU, or by its level of attained service.
        """
        left = None
        if self._declared:
            left = job.remaining / job.speed_alone if job.speed_alone else 0.0
        work = expected_work(job.gpu_s, left)
        age = now - job.job.submitted
        return GoodputCandidate(speedups(job, cluster), held, work, age, job.gpu_s, job.starts)


class Autoscaled:
    """Allocates the nodes that are worth their cost (section 4.2.2), and workers by goodput on these.

    Nodes are numbered, and those with the highest numbers are given back.
    """

    fixes_workers = fixes_batch = False

    def __init__(self, policy: Goodput, bounds: UtilityBounds) -> None:
        self._policy = policy
        self._bounds = bounds
        self._nodes = 0
        self.fills_memory = policy.fills_memory

    def decide(self, now: float, jobs: Sequence[RunningJob], held: Held, cluster: ClusterShape) -> Held:
        """Workers on a number of nodes whose utility is within the bounds, or nearest to them."""
        most = min(self._bounds.most, cluster.nodes)
        utilities = self._policy.utilities(now, jobs, held, ClusterShape(most, cluster.gpus))
        self._nodes = self._bounds.size(utilities, self._nodes)
        kept = {name: nodes for name, nodes in held.items() if max(nodes) < self._nodes}
        return self._policy.decide(now, jobs, kept, ClusterShape(self._nodes, cluster.gpus))


def speedups(job: RunningJob, cluster: ClusterShape) -> Floats:
    """Speed-ups on 0 to as many workers as the job may have; one worker where nothing was measured yet."""
    limits = job.program.limits
    most = job.workers or job.profile.most_workers(min(cluster.size, limits.most // limits.local_least))
    if most == 1 or job.model is None:
        return np.array([0.0, 1.0])
    return _table(job.model, most, cluster.gpus, fills=job.fills)


@lru_cache(maxsize=4096)
def _table(model: GoodputModel, most: int, gpus: int, *, fills: bool) -> Floats:
    """Speed-ups on 0 to `most` workers of the fewest nodes; a model stays for many decisions."""
    workers = np.arange(1, most + 1)
    nodes = -(-workers // gpus)
    if fills:
        speeds = model.throughput(nodes, workers, filling(model.limits, workers))
        return np.concatenate([[0.0], speeds / speeds[0]])
    return np.concatenate([[0.0], model.speedup(nodes, workers)])
