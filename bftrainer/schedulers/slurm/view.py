"""From what Slurm shows to what bftrainer works with: nodes that may be ours or why not, our pilots, and the
claims of main jobs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from bftrainer.model.machine import Node, NodeState, Pilot, Snapshot
from bftrainer.schedulers.shared.names import NAME, TAG, job_name
from bftrainer.schedulers.shared.patience import Known
from bftrainer.schedulers.shared.text import TextError
from bftrainer.schedulers.shared.times import shifted
from bftrainer.schedulers.shared.wanted import Claims
from bftrainer.schedulers.slurm import claims, gpus, main_jobs, values
from bftrainer.schedulers.slurm.left import Left
from bftrainer.schedulers.slurm.parts import USED_UP, after_main_jobs, held_parts, spare_parts
from bftrainer.schedulers.slurm.pilot import SHORTEST_S, Room
from bftrainer.schedulers.slurm.rooms import Rooms
from bftrainer.schedulers.slurm.rows import JobRow, Machine, NodeRow

HARMLESS = frozenset({"CLOUD", "DYNAMIC_NORM"})
"""The only words in a node's state that do not mean hands off; those that come with a later Slurm do."""
CLOUD = "CLOUD"
KEPT_UP = "cloud: a pilot would keep it up; see slurm_cloud"
PASSING = frozenset({"COMPLETING", "PLANNED"})
"""Words of nodes that main jobs can have soon."""
USABLE = frozenset({"IDLE", "ALLOCATED", "MIXED"})
UNREACHED = "agents there cannot reach the daemon at a loopback address: set address"
GONE = frozenset({"COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"})


@dataclass(frozen=True, slots=True)
class Ours:
    """What is ours: pilots are jobs named `bftrainer-<instance>-<tag>` of these users.

    `users` None: of any user. Pilots go to `partition`, "" the default one. Only nodes of the partitions in
    `watch` are seen; if it is empty, those of `partition`. With `preempted`, pilots only go where main jobs
    may take their nodes. `here`: agents reach the daemon only from this machine, which has these names;
    empty: from everywhere. `cloud`: nodes of state CLOUD may be ours. `preempting`: main jobs may preempt
    pilots. `parts`: pilots may have free GPUs of nodes that main jobs use in part.
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


@dataclass(frozen=True, slots=True)
class View:
    """One poll: the snapshot, and what the scheduler object needs to remember of it."""

    snapshot: Snapshot
    found: Claims  # what main jobs that should start now need
    pilot_partition_max_s: float | None
    parts: Mapping[str, Left] = field(default_factory=dict)  # node -> what a pilot may have of it, if not all

    def why(self, name: str) -> str:
        """Why a node is not ours; "" if it is, or is not seen."""
        return next((node.why for node in self.snapshot.nodes if node.name == name), "")

    def room(self, name: str) -> Room:
        """What there is for a pilot on a node."""
        gres = next((node.gres for node in self.snapshot.nodes if node.name == name), "")
        return Room(self.pilot_partition_max_s, gres, self.parts.get(name))

    def shifted(self, seconds: float) -> View:
        """The same with all times later by so much."""
        return replace(self, snapshot=shifted(self.snapshot, seconds))


def interpret(
    machine: Machine,
    jobs: Sequence[JobRow],
    ours: Ours,
    *,
    now: float,
    known: Known | None = None,
) -> View:
    """The snapshot. `known`: what earlier polls say of main jobs.

    Raises:
        TextError: a partition of the settings does not exist.
    """
    partition = pilot_partition(machine, ours)
    watched = ours.watch or {partition}
    for name in sorted({partition, *watched} - machine.partitions.keys()):
        raise TextError(f"Slurm has no partition {name!r}, only {', '.join(sorted(machine.partitions))}")
    found = pilots(jobs, ours)
    own = {pilot.job for pilot in found}
    main = [job for job in jobs if job.id not in own and not NAME.fullmatch(job.name)]
    others = [j for j in jobs if j.id not in own and j.state != "PENDING" and j.state not in GONE]
    running = {name: job.id for job in others for name in job.nodes}
    foreign = {name for job in others if NAME.fullmatch(job.name) for name in job.nodes}
    until = _until(machine, main, now)
    later = {name for name, start in until.items() if start - now >= SHORTEST_S}
    held = {pilot.node: pilot.ends for pilot in found if not pilot.pending}
    mine = [job for job in jobs if job.id in own]
    parts = held_parts(mine)
    spare = spare_parts(machine.nodes, held.keys() | foreign, mine) if ours.parts else {}
    why = _why_not(machine, main, found, running, partition, ours, later, parts.keys() | spare.keys())
    rows = {name: row for name, row in machine.nodes.items() if not watched.isdisjoint(row.partitions)}
    known = known or Known()
    waiting = claims.able(main, now, known.lapsed)
    walk = claims.walked(
        claims.in_order(waiting, machine.partitions),
        machine.nodes,
        machine.partitions,
        _rooms(machine, why, held, running, foreign, parts, spare),
        now,
        known.ready,
        doubted=known.doubted,
        preempting=ours.preempting,
    )
    wanted = walk.found()
    free = after_main_jobs(
        {n: p for n, p in spare.items() if not why.get(n)}, machine.nodes, walk.course.left
    )
    why |= {name: why.get(name) or USED_UP for name in spare.keys() - free.keys()}
    why |= {name: f"claimed by job {job}" for name, job in wanted.taken.items()}
    # a job that is about to start gets nodes by its claims; where else it is planned now says nothing of ours
    if any(job.planned for job in main if job.id in wanted.users):
        apart = _until(machine, [job for job in main if job.id not in wanted.users], now)
        until |= {name: apart.get(name, inf) for name in held if name in until}
    nodes = tuple(_node(row, why.get(row.name, ""), until.get(row.name, inf)) for row in rows.values())
    snapshot = Snapshot(
        time=now,
        nodes=nodes,
        claims=wanted.claims,
        pilots=found,
        main=main_jobs.shown(main, wanted, now),
        waiting=main_jobs.waiting(main),
    )
    return View(snapshot, wanted, machine.partitions[partition].max_s, free)


def is_loopback(host: str) -> bool:
    """Whether a host, or a host:port, is a loopback address: on every machine it means that machine."""
    return host.startswith("127.") or host.partition(":")[0] == "localhost"


def pilot_partition(machine: Machine, ours: Ours) -> str:
    """The partition that pilots go to: the one of the settings, or the default one."""
    default = (name for name, partition in machine.partitions.items() if partition.default)
    return ours.partition or next(default, "")


def pilots(jobs: Collection[JobRow], ours: Ours) -> tuple[Pilot, ...]:
    """Our pilots in the queue; one that was submitted twice is there twice."""
    return tuple(pilot for job in jobs if (pilot := _pilot(job, ours)) is not None)


def _pilot(job: JobRow, ours: Ours) -> Pilot | None:
    prefix = job_name(ours.instance, "")
    tag = job.name.removeprefix(prefix)
    if (
        not job.name.startswith(prefix)
        or not TAG.fullmatch(tag)
        or job.state in GONE
        or (ours.users is not None and job.user not in ours.users)
    ):
        return None
    where = job.nodes or tuple(values.names(job.required) or ())
    if len(where) != 1:
        return None  # a job that only has the name: a pilot is on one node
    running = job.state == "RUNNING"
    return Pilot(
        tag=tag,
        node=where[0],
        user="" if job.user == ours.user else job.user,
        job=job.id,
        ends=job.end if running else None,
        pending="" if running else job.reason if job.state == "PENDING" else job.state.lower(),
    )


def _why_not(
    machine: Machine,
    main: Collection[JobRow],
    found: Collection[Pilot],
    running: Mapping[str, str],
    partition: str,
    ours: Ours,
    later: Collection[str],
    parts: Collection[str],
) -> dict[str, str]:
    """Nodes that are not ours -> why. Those of `later` may be planned for main jobs: there is time for a
    pilot before. Main jobs may be on those of `parts`, of which pilots have a part, or could."""
    held = {pilot.node for pilot in found if not pilot.pending}
    coming = {pilot.node for pilot in found if pilot.pending}
    planned = set[str]().union(*{job.planned for job in main if job.state == "PENDING"})
    known = machine.partitions[partition]
    above = {name for name, other in machine.partitions.items() if other.tier > known.tier}
    shut = "" if known.up else f"partition {partition} is not up"
    why: dict[str, str] = {}
    for name, row in machine.nodes.items():
        hole = name in later if name in planned else name in coming
        reason = unfit(row, held=name in held, hole=hole, part=name in parts)
        if not reason and not ours.cloud and CLOUD in row.flags:
            reason = KEPT_UP
        if not reason and name in running and name not in parts:  # it started between the two commands
            reason = f"job {running[name]}"
        if not reason and partition not in row.partitions:
            reason = f"not in partition {partition}"
        if not reason and name not in held:
            reason = shut
            if ours.here and not any(is_loopback(host) or host in ours.here for host in row.hosts):
                reason = UNREACHED
            if ours.preempted and (not known.preempted or above.isdisjoint(row.partitions)):
                reason = f"nothing preempts jobs of partition {partition}"
        if reason:
            why[name] = reason
    return why


def unfit(row: NodeRow, *, held: bool = False, hole: bool = False, part: bool = False) -> str:
    """Why a node's state says that it is not ours; "" if it is. One that we hold may be in use, as one
    that is to be ours in `part`; one with a `hole` may be planned."""
    harmless = HARMLESS | {"PLANNED"} if held or hole else HARMLESS
    flags = sorted(row.flags - harmless)
    fit = USABLE if held or part or flags else {"IDLE"}
    words = flags if row.base in fit else [row.base or "no state", *flags]
    return "+".join(words).lower().replace("_", " ")


def _rooms(
    machine: Machine,
    why: Mapping[str, str],
    held: Mapping[str, float | None],
    running: Collection[str],
    foreign: set[str],
    parts: Mapping[str, Left],
    spare: Collection[str],
) -> Rooms:
    """Where a main job could start. A node that is in use by no job of the queue is being cleared."""
    free, coming, shared = [], [], []
    for name, row in machine.nodes.items():
        if name in held or row.flags - HARMLESS - PASSING:
            continue
        if name in running:
            if row.base == "MIXED" and name not in foreign:
                shared.append(name)
        elif not why.get(name) or (row.base == "IDLE" and not row.flags & PASSING):
            free.append(name)
        elif row.base in USABLE:
            coming.append(name)
    reserved: dict[str, float] = {}
    for reservation in machine.reservations:
        for name in reservation.nodes:
            reserved[name] = min(reserved.get(name, reservation.start), reservation.start)
    usable = frozenset(name for name in held if name in machine.nodes and name not in why)
    return Rooms(
        frozenset(free),
        frozenset(coming),
        usable,
        reserved,
        shared=frozenset(shared),
        ends={name: end for name, end in held.items() if end is not None},
        flexible=frozenset(reservation.name for reservation in machine.reservations if reservation.flex),
        taken=frozenset(running).difference(shared, foreign),
        foreign=frozenset(foreign & machine.nodes.keys()),
        parts={name: part for name, part in parts.items() if name in usable},
        spare=frozenset(spare),
        clearing=frozenset(name for name in coming if not _idle(machine.nodes[name])),
    )


def _idle(row: NodeRow) -> bool:
    return row.base == "IDLE" and "COMPLETING" not in row.flags


def _until(machine: Machine, main: Collection[JobRow], now: float) -> dict[str, float]:
    """When a node is expected to be taken: the first planned start or reservation that is to come."""
    starts: dict[tuple[str, ...], float] = {}
    for job in main:
        if job.state == "PENDING" and job.start is not None and job.planned:
            starts[job.planned] = min(job.start, starts.get(job.planned, inf))
    taken = [(start, nodes) for nodes, start in starts.items()]
    taken += [(own.start, own.nodes) for own in machine.reservations if own.end > now]
    found: dict[str, float] = {}
    for start, nodes in sorted(taken, key=lambda one: -one[0]):  # the first counts; many name many nodes each
        found |= dict.fromkeys(nodes, start)
    return found


def _node(row: NodeRow, why: str, until: float) -> Node:
    return Node(
        name=row.name,
        state=NodeState.BUSY if why else NodeState.IDLE,
        until=None if until == inf else until,
        partitions=row.partitions,
        features=row.features,
        gres=row.gres,
        gpus=gpus.total(row.gpus),
        why=why,
        cpus=row.cpus,
        spare=1.0 - row.cpus_used / row.cpus if row.base == "MIXED" and row.cpus else 0.0,
    )
