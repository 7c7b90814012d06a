"""Sorts the jobs of Slurm's queue by owner: our pilots, pilots of other daemons, main jobs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Pilot, Slot
from bftrainer.model.main_jobs import JobOnNode, jobs_on_nodes
from bftrainer.schedulers.shared.instance import NAME, job_name
from bftrainer.schedulers.slurm import values
from bftrainer.schedulers.slurm.queue.resources import Remaining
from bftrainer.schedulers.slurm.rows import SlurmJobRow

CLEARED = "COMPLETING"
GONE = frozenset(
    {
        CLEARED,
        *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"),
        *("BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED"),
    }
)


@dataclass(frozen=True, slots=True)
class SlurmOwnJobs:
    """Recognises our jobs: pilots are named `bftrainer-<instance>-<tag>` of these users.

    `users` None: of any user. Pilots go to `partition`, "" the default one. Only nodes of the partitions in
    `watch` are seen; if it is empty, those of `partition`. With `preempted`, pilots only go where main jobs
    may take their nodes. `here`: agents reach the daemon only from this machine, which has these names;
    empty: from everywhere. `cloud`: nodes of state CLOUD may be ours. `preempting`: main jobs may preempt
    pilots. `parts`: pilots may have free GPUs of nodes that main jobs use in part. `gpus`: pilots have single
    GPUs, and no whole node (`share: gpu`).
    """

    instance: str
    user: str
    users: frozenset[str] | None
    partition: str = ""
    watch: frozenset[str] = frozenset()
    preempted: bool = False
    here: frozenset[str] = frozenset()
    cloud: bool = False
    preempting: bool = False
    parts: bool = False
    gpus: bool = False


@dataclass(frozen=True, slots=True)
class JobQueue:
    """The jobs of one poll, by whose they are.

    Attributes:
        pilots: Ours, in the order of the queue.
        rows: The same as Slurm shows them, by their jobs.
        main: Main jobs.
        running: Node -> what jobs of others make of it.
        foreign: Nodes of pilots of other daemons.
        clearing: Our pilots that have ended and are being cleared away.
    """

    pilots: tuple[Pilot, ...]
    rows: Mapping[str, SlurmJobRow]
    main: tuple[SlurmJobRow, ...]
    running: Mapping[str, JobOnNode]
    foreign: frozenset[str]
    clearing: frozenset[Pilot]

    @property
    def cleared(self) -> frozenset[str]:
        """Nodes, or GPUs, of pilots that are being cleared away."""
        return frozenset(pilot.node for pilot in self.clearing)

    @property
    def held(self) -> dict[str, float | None]:
        """Node -> when the last of our pilots that run there ends; None: not known."""
        found: dict[str, float] = {}
        for pilot in self.pilots:
            if not pilot.pending:
                node = node_of(pilot.node)
                found[node] = max(found.get(node, -inf), inf if pilot.ends is None else pilot.ends)
        return {node: None if end == inf else end for node, end in found.items()}

    @property
    def parts(self) -> dict[str, dict[str, Remaining]]:
        """Return the resources of our running pilots that do not have a whole node."""
        found: dict[str, dict[str, Remaining]] = {}
        for job in self.rows.values():
            if job.shares and job.state == "RUNNING" and len(job.nodes) == 1:
                part = Remaining(max(job.cpus, job.all_cpus), job.memory_mb, job.gpus)
                found.setdefault(job.nodes[0], {})[str(Slot(job.nodes[0], Slot.of(job.name).gpu))] = part
        return found


def queue(jobs: Sequence[SlurmJobRow], ours: SlurmOwnJobs) -> JobQueue:
    """All jobs, by whose they are."""
    found = pilots(jobs, ours)
    own = {pilot.job for pilot in found}
    others = [job for job in jobs if job.id not in own and job.state != "PENDING" and job.state not in GONE]
    return JobQueue(
        found,
        {job.id: job for job in jobs if job.id in own},
        tuple(job for job in jobs if job.id not in own and not NAME.fullmatch(job.name)),
        jobs_on_nodes((job.id, job.end, job.nodes) for job in others),
        frozenset(name for job in others if NAME.fullmatch(job.name) for name in job.nodes),
        frozenset(pilot for job in jobs if job.state == CLEARED and (pilot := _pilot(job, ours)) is not None),
    )


def pilots(jobs: Collection[SlurmJobRow], ours: SlurmOwnJobs) -> tuple[Pilot, ...]:
    """Our pilots in the queue; one that was submitted twice is there twice."""
    shown = (_pilot(job, ours) for job in jobs if job.state not in GONE)
    return tuple(pilot for pilot in shown if pilot is not None)


def _pilot(job: SlurmJobRow, ours: SlurmOwnJobs) -> Pilot | None:
    if not _is_named(job, ours):
        return None
    where = job.nodes or tuple(values.names(job.required) or ())
    if len(where) != 1:
        return None  # a job that only has the name: a pilot is on one node
    running = job.state == "RUNNING"
    named = Slot.of(job.name)  # a name ends as that of its GPU does
    return Pilot(
        tag=named.node.removeprefix(job_name(ours.instance, "")),
        node=str(Slot(where[0], named.gpu)),
        user="" if job.user == ours.user else job.user,
        job=job.id,
        ends=job.end if running else None,
        pending="" if running else job.reason if job.state == "PENDING" else job.state.lower(),
    )


def _is_named(job: SlurmJobRow, ours: SlurmOwnJobs) -> bool:
    """Return whether a job has a name of our pilots, and is of a user who may have some."""
    begins = job.name.startswith(job_name(ours.instance, "")) and NAME.fullmatch(job.name)
    return bool(begins) and (ours.users is None or job.user in ours.users)
