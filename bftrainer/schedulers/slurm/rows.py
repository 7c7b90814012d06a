"""Rows of Slurm's commands, as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer.schedulers.slurm.queue.gpus import Kinds, Parts


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: the base of its state such as IDLE, and what is said besides, such as PLANNED."""

    name: str
    base: str
    flags: frozenset[str]
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    gres: str
    gpus: Kinds
    cpus: int
    memory_mb: int
    hosts: tuple[str, ...] = ()  # the address that Slurm calls it by, and its machine's name
    cpus_used: int = 0
    memory_used_mb: int = 0
    gpus_used: Kinds = ()  # in whole or in part
    threads: int = 1  # of each core; jobs have whole cores
    gpu_parts: Parts = ()  # of one GPU
    opened: Parts = ()  # the GPUs that jobs have parts of, with the parts that are left


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition; jobs of a higher `tier` start first. `max_s` None: no time limit."""

    name: str
    tier: int
    up: bool
    default: bool
    max_s: float | None
    preempted: bool = True  # whether main jobs may take the nodes of its jobs, as far as it says


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are reserved from `start` to `end` (Unix seconds)."""

    name: str
    start: float
    end: float
    nodes: tuple[str, ...]
    flex: bool = False  # its jobs may start before it begins, and on other nodes as well


@dataclass(frozen=True, slots=True)
class SlurmMachine:
    """The output of `scontrol`, by name."""

    nodes: Mapping[str, NodeRow]
    partitions: Mapping[str, Partition]
    reservations: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True)
class SlurmJobRow:
    """A job of the queue. `tasks`: how many of an array's tasks this line stands for, at most.

    The lists of nodes that users write, `required` and `excluded`, are left as they are: one line may name
    every node of the machine, and `values.expand` reads those of the few jobs where they matter.
    """

    id: str
    tasks: int
    partitions: tuple[str, ...]
    user: str
    state: str
    start: float | None  # when it started, or is expected to
    end: float | None
    limit_s: float | None  # None: unlimited, or not known
    count: int  # nodes
    planned: tuple[str, ...]  # the nodes on which it is expected to start
    nodes: tuple[str, ...]  # that it holds
    required: str  # nodes, in Slurm's short form
    excluded: str  # likewise
    features: str
    priority: int
    reservation: str
    cpus: int  # on each node, at least
    memory_mb: int  # on each node, at least
    gpus: Kinds  # on each node
    all_cpus: int  # on all nodes together, at least
    shares: (
        bool | None
    )  # whether it may be on a node with other jobs; None: squeue's word for it is not known
    reason: str
    name: str  # the beginning of its first line
    submitted: float | None = None
    contiguous: bool = False  # whether its nodes have to lie side by side
    gpu_parts: Parts = ()  # parts of GPUs that it needs on each node
    all_gpus: Kinds = ()  # on all nodes together, where it says no more: it may take more nodes for them

    @property
    def each(self) -> tuple[int, int, Kinds, Parts]:
        """Its needs on each node: cores, memory, GPUs and parts of GPUs."""
        return self.cpus, self.memory_mb, self.gpus, self.gpu_parts

    @property
    def whole(self) -> str:
        """The heterogeneous job that this is a part of, such as 12 of 12+1; any other is whole itself."""
        return self.id.partition("+")[0]


@dataclass(frozen=True, slots=True)
class SlurmJobEnd:
    """The end of a job. `code`: of its script; 0 also if that was killed. `preempted`: whether Slurm has
    told it to end, for another job."""

    state: str
    code: int
    reason: str
    preempted: bool = False
