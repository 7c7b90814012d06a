"""What is left of a node that jobs share, and what a job wants of nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer.schedulers.slurm.gpus import Kinds, covers, plus, without
from bftrainer.schedulers.slurm.rows import JobRow, NodeRow


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a node that jobs share."""

    cpus: int
    memory_mb: int
    gpus: Kinds

    def fits(self, job: JobRow) -> bool:
        """Whether a job may have its part of it."""
        return (
            job.shares
            and self.cpus >= max(1, job.cpus)
            and self.memory_mb >= job.memory_mb
            and covers(self.gpus, job.gpus)
        )


Parts = Mapping[str, Mapping[str, Left]]
"""Node -> pilot of ours -> what it has there. A pilot goes by the name of its node, or of its GPU."""


def wish(job: JobRow) -> object:
    """All that says where a job can start."""
    each = (job.cpus, job.memory_mb, job.gpus, job.shares, job.features)
    where = (job.partitions, job.required, job.excluded, job.reservation)
    return job.count, job.all_cpus, job.contiguous, each, where, job.limit_s, job.reason


def together(one: Left, other: Left) -> Left:
    """Both."""
    gpus = plus(one.gpus, other.gpus)
    return Left(one.cpus + other.cpus, one.memory_mb + other.memory_mb, gpus)


def less(left: Left, job: JobRow, cpus: int) -> Left:
    """What is left once a job has taken so many CPUs and what else it asks for."""
    memory_mb = max(0, left.memory_mb - job.memory_mb)
    return Left(max(0, left.cpus - cpus), memory_mb, without(left.gpus, job.gpus))


def left_of(row: NodeRow) -> Left:
    """What its jobs leave of a node."""
    gpus = without(row.gpus, row.gpus_used)
    return Left(row.cpus - row.cpus_used, row.memory_mb - row.memory_used_mb, gpus)


def whole(row: NodeRow) -> Left:
    """All of a node."""
    return Left(row.cpus, row.memory_mb, row.gpus)
