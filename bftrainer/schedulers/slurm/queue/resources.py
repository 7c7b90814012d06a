"""Resources that remain of a node that jobs share, and those that a job wants. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bftrainer.schedulers.slurm.queue.gpus import Kinds, after, covers, plus, without
from bftrainer.schedulers.slurm.queue.gpus import Parts as GpuParts
from bftrainer.schedulers.slurm.rows import NodeRow, SlurmJobRow


@dataclass(frozen=True, slots=True)
class Remaining:
    """The resources left of a node that jobs share."""

    cpus: int
    memory_mb: int
    gpus: Kinds
    opened: GpuParts = ()  # GPUs that jobs have parts of, with the parts that are left
    gpu_parts: GpuParts = ()  # of one GPU

    def fits(self, job: SlurmJobRow) -> bool:
        """Return whether a job may have its part of it."""
        return (
            bool(job.shares)
            and self.cpus >= max(1, job.cpus)
            and self.memory_mb >= job.memory_mb
            and covers(self.gpus, job.gpus)
            and after(self.gpus, self.opened, self.gpu_parts, job.gpu_parts) is not None
        )


Parts = Mapping[str, Mapping[str, Remaining]]
"""Node -> our pilot -> what it has there. A pilot goes by the name of its node, or of its GPU."""


def wish(job: SlurmJobRow) -> object:
    """All that says where a job can start."""
    each = (job.each, job.shares, job.features)
    where = (job.partitions, job.required, job.excluded, job.reservation)
    return job.count, job.all_cpus, job.all_gpus, job.contiguous, each, where, job.limit_s, job.reason


def together(one: Remaining, other: Remaining) -> Remaining:
    """Both."""
    gpus, opened = plus(one.gpus, other.gpus), one.opened + other.opened
    parts = one.gpu_parts or other.gpu_parts
    return Remaining(one.cpus + other.cpus, one.memory_mb + other.memory_mb, gpus, opened, parts)


def less(left: Remaining, job: SlurmJobRow, cpus: int) -> Remaining:
    """Return what is left once a job has taken `cpus` CPUs and what else it asks for."""
    memory_mb = max(0, left.memory_mb - job.memory_mb)
    gpus = without(left.gpus, job.gpus)
    gpus, opened = after(gpus, left.opened, left.gpu_parts, job.gpu_parts) or (gpus, left.opened)
    return Remaining(max(0, left.cpus - cpus), memory_mb, gpus, opened, left.gpu_parts)


def left_of(row: NodeRow) -> Remaining:
    """Return what its jobs leave of a node."""
    gpus = without(row.gpus, row.gpus_used)
    memory_mb = row.memory_mb - row.memory_used_mb
    return Remaining(row.cpus - row.cpus_used, memory_mb, gpus, row.opened, row.gpu_parts)


def whole(row: NodeRow) -> Remaining:
    """All of a node."""
    return Remaining(row.cpus, row.memory_mb, row.gpus, (), row.gpu_parts)


@dataclass(frozen=True, slots=True)
class Rooms:
    """Nodes where a pending main job could start, in the order in which it should take them."""

    free: frozenset[str]  # idle
    coming: frozenset[str]  # its last job is being cleared away, or Slurm plans to use it
    held: frozenset[str]  # by our running pilots
    reserved: Mapping[str, float] = field(default_factory=dict)  # node -> when a reservation takes it
    shared: frozenset[str] = frozenset()  # main jobs use a part of it
    ends: Mapping[str, float] = field(default_factory=dict)  # held node -> its pilot's end
    flexible: frozenset[str] = frozenset()  # reservations whose jobs need not be on their nodes
    taken: frozenset[str] = frozenset()  # main jobs use all of it
    foreign: frozenset[str] = frozenset()
    """Held by pilots of other daemons, which give it up as we do, or in a state of a later Slurm."""
    parts: Parts = field(default_factory=dict)  # those of which our pilots do not have all
    spare: frozenset[str] = frozenset()  # of the free and shared ones: those of which pilots may take parts
    clearing: frozenset[str] = frozenset()  # of those that are coming: the ones that are not idle yet

    @property
    def all(self) -> frozenset[str]:
        """All where a job could start."""
        return self.free | self.coming | self.held | self.shared | self.foreign

    def rank(self, name: str) -> int:
        """In which turn a job should take a node. Another daemon counts likewise: each gives its own, rather
        than wait for the other."""
        kinds = (self.shared, self.free, self.coming, self.held, self.foreign)
        return next((i for i, kind in enumerate(kinds) if name in kind), len(kinds))
