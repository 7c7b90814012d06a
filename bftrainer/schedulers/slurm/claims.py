"""Which pending main jobs could start now, and what of ours they would need. Pure.

This follows what Slurm's scheduler does with the queue, as far as squeue shows it: jobs in the order of
their partition's tier and their priority; a job that cannot start keeps its nodes from those behind it,
unless they end in time (backfill). What squeue does not show (topology, licences, limits still to come) can
make this wrong in both directions. A claim that leads to no start lapses, see `scheduler.py`; for a job that
is not recognised, Slurm preempts our pilots by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from bftrainer.model.machine import Claim
from bftrainer.schedulers.slurm.rows import JobRow, NodeRow, Partition

DEPTH = 500  # as many jobs as Slurm's backfill looks at by default (bf_max_job_test)
WAITING = (
    "None",
    "Priority",
    "Resources",
    "ReqNodeNotAvail",
    "Nodes required for job",
    "Nodes_required_for_job",
)
"""Beginnings of the reasons of jobs that wait for nodes only."""
PLANNED_SOON = ("None", "Priority", "Resources")
"""With another reason the nodes may never come, and Slurm lets the jobs behind it pass."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """Where a pending main job could start, in the order in which it should take nodes."""

    free: frozenset[str]  # idle
    coming: frozenset[str]  # its last job is being cleared away, or Slurm plans to use it
    held: frozenset[str]  # by running pilots of ours
    reserved: Mapping[str, float] = field(default_factory=dict)  # node -> when a reservation takes it

    @property
    def all(self) -> frozenset[str]:
        """All of them."""
        return self.free | self.coming | self.held


@dataclass(frozen=True, slots=True)
class Claims:
    """What pending main jobs would need: nodes of ours, and free nodes."""

    claims: tuple[Claim, ...] = ()
    taken: Mapping[str, str] = field(
        default_factory=dict
    )  # free node -> the job that is about to start there

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs that are expected to start now."""
        return frozenset(claim.job for claim in self.claims) | frozenset(self.taken.values())


def waits_for_nodes(job: JobRow) -> bool:
    """Whether a pending job waits for nodes only, of those that could be ours."""
    return (
        job.state == "PENDING"
        and job.priority > 0  # 0: held
        and job.count > 0
        and not job.reservation  # it waits for nodes that are not ours anyway
        and job.reason.startswith(WAITING)
    )


def in_order(jobs: Collection[JobRow], partitions: Mapping[str, Partition]) -> list[JobRow]:
    """The jobs in the order in which Slurm tries to start them."""

    def tier(job: JobRow) -> int:
        return max((partitions[name].tier for name in job.partitions if name in partitions), default=0)

    def number(job: JobRow) -> tuple[int, ...]:
        return tuple(int(part) for part in job.id.replace("+", "_").split("_") if part.isdecimal())

    return sorted(jobs, key=lambda job: (-tier(job), -job.priority, number(job)))


def claims(
    jobs: Sequence[JobRow],
    nodes: Mapping[str, NodeRow],
    partitions: Mapping[str, Partition],
    rooms: Rooms,
    now: float,
) -> Claims:
    """Which of `jobs`, main jobs that wait for nodes, could start, and where; they are tried in their
    order."""
    walk = _Walk(nodes, partitions, rooms, now)
    for job in jobs[:DEPTH]:
        for _ in range(job.tasks):
            if not walk.rooms or not walk.start(job):
                break
        if not walk.rooms:
            break
    return Claims(tuple(walk.claims), walk.taken)


class _Walk:
    def __init__(
        self,
        nodes: Mapping[str, NodeRow],
        partitions: Mapping[str, Partition],
        rooms: Rooms,
        now: float,
    ) -> None:
        self._nodes, self._partitions, self._now = nodes, partitions, now
        self._free, self._held = rooms.free, rooms.held
        self.rooms = set(rooms.all)  # where a job could still start
        self._kept = dict(rooms.reserved)  # node -> until when lower jobs may use it
        self._eligible: dict[object, frozenset[str]] = {}
        self.claims: list[Claim] = []
        self.taken: dict[str, str] = {}

    def start(self, job: JobRow) -> bool:
        """Start the job if it could be; else keep its nodes from those behind it."""
        eligible = self._where(job)
        ends = self._now + (inf if job.limit_s is None else job.limit_s)
        usable = {name for name in eligible & self.rooms if self._kept.get(name, inf) >= ends}
        required = set(job.required)
        if len(usable | required) < job.count or not required <= usable:
            self._block(job, eligible)
            return False
        first = {name: i for i, name in enumerate(job.planned)}
        ranked = sorted(
            usable,
            key=lambda name: (name not in required, self._rank(name), first.get(name, len(first)), name),
        )
        used = set(ranked[: max(job.count, len(required))])
        self._claim(job, used & self._held & required, must=True, among=required)
        self._claim(job, (used & self._held) - required, must=False, among=usable - required)
        self.taken.update(dict.fromkeys(sorted(used & self._free), job.id))
        self.rooms -= used
        return True

    def _claim(self, job: JobRow, used: set[str], *, must: bool, among: set[str]) -> None:
        if used:
            # any that we hold will do, unless the job names them
            candidates = used if must else among & self._held
            self.claims.append(Claim(job=job.id, nodes=frozenset(candidates), count=len(used)))

    def _block(self, job: JobRow, eligible: frozenset[str]) -> None:
        """Keep the nodes of a job that waits, from its expected start on. Before Slurm has planned it, no job
        behind it starts where this one could."""
        if job.planned and job.start is not None:
            for name in self.rooms.intersection(job.planned):
                self._kept[name] = min(self._kept.get(name, inf), job.start)
        elif job.reason in PLANNED_SOON:
            self.rooms -= eligible

    def _rank(self, name: str) -> int:
        return 0 if name in self._free else 2 if name in self._held else 1

    def _where(self, job: JobRow) -> frozenset[str]:
        """The rooms on whose nodes the job may run at all."""
        key = (job.partitions, job.excluded, job.features, job.cpus, job.memory_mb, job.gpus)
        found = self._eligible.get(key)
        if found is None:
            up = {name for name in job.partitions if name in self._partitions and self._partitions[name].up}
            wanted = features(job.features)
            found = self._eligible[key] = frozenset(
                name
                for name in self.rooms
                if not up.isdisjoint((row := self._nodes[name]).partitions)
                and name not in job.excluded
                and any(alternative <= set(row.features) for alternative in wanted)
                and row.cpus >= job.cpus
                and row.memory_mb >= job.memory_mb
                and row.gpus >= job.gpus
            )
        return found


def features(text: str) -> tuple[frozenset[str], ...]:
    """What a job's constraint asks for: any of these sets. A constraint that is neither all of some
    features (a&b) nor any of them (a|b) is not understood: no node is known to do."""
    if not text:
        return (frozenset(),)
    if not set(text).isdisjoint("[]()*!") or {"&", "|"} <= set(text):
        return ()
    if "|" in text:
        return tuple(frozenset({word}) for word in text.split("|"))
    return (frozenset(text.replace(",", "&").split("&")),)
