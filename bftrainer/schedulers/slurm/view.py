"""From what Slurm shows to what bftrainer works with: nodes that may be ours or why not, our pilots, and the
claims of main jobs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Node, NodeState, Pilot, Snapshot
from bftrainer.model.main_jobs import JobOnNode
from bftrainer.schedulers.shared.batch import BatchView
from bftrainer.schedulers.shared.claims import Claims, Known
from bftrainer.schedulers.shared.text import TextError
from bftrainer.schedulers.slurm.dialect import NODE_FLAGS, NODE_STATES
from bftrainer.schedulers.slurm.own_jobs import JobQueue, SlurmOwnJobs
from bftrainer.schedulers.slurm.own_jobs import queue as of_queue
from bftrainer.schedulers.slurm.pilot import SHORTEST_S, PilotResources
from bftrainer.schedulers.slurm.queue import claims, gpus, main_jobs
from bftrainer.schedulers.slurm.queue.parts import USED_UP, after_main_jobs, spare_parts, used_by_main_jobs
from bftrainer.schedulers.slurm.queue.places import GpuPlaces, places
from bftrainer.schedulers.slurm.queue.resources import Remaining, Rooms, left_of
from bftrainer.schedulers.slurm.queue.state import QueueState
from bftrainer.schedulers.slurm.rows import NodeRow, SlurmJobRow, SlurmMachine
from bftrainer.schedulers.slurm.shut import Gate

HARMLESS = frozenset({"CLOUD", "DYNAMIC_NORM"})
"""The only words in a node's state that do not mean hands off; those that come with a later Slurm do."""
PASSING = frozenset({"COMPLETING", "PLANNED"})
"""Words of nodes that main jobs can have soon."""
USABLE = frozenset({"IDLE", "ALLOCATED", "MIXED"})
OVERDUE_S = 60.0
"""Seconds beyond its end after which Slurm would have ended a pilot: its clock is not ours, and when the
pilot ends is not known. Else we would give its node back, and submit the next one, again and again."""


@dataclass(frozen=True, slots=True)
class SlurmView(BatchView):
    """One poll, with what pilots may have.

    Attributes:
        longest_s: The longest time limit of the pilots' partition; None: it has none.
        parts: Node -> what a pilot may have of it, if not all.
        shares: Node -> the share of its machine's cores, if not all.
    """

    longest_s: float | None = None
    parts: Mapping[str, Remaining] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)

    def room(self, name: str) -> PilotResources:
        """Return the resources for a pilot on a node."""
        node = self.node(name)
        gres = node.gres if node else ""
        return PilotResources(self.longest_s, gres, self.parts.get(name), self.shares.get(name, 1.0))


def interpret(
    machine: SlurmMachine,
    jobs: Sequence[SlurmJobRow],
    ours: SlurmOwnJobs,
    *,
    now: float,
    known: Known | None = None,
) -> SlurmView:
    """The snapshot. `known`: what earlier polls say of main jobs.

    Raises:
        TextError: a partition of the settings does not exist.
    """
    partition = pilot_partition(machine, ours)
    watched = ours.watch or {partition}
    for name in sorted({partition, *watched} - machine.partitions.keys()):
        raise TextError(f"Slurm has no partition {name!r}, only {', '.join(sorted(machine.partitions))}")
    queue = of_queue(jobs, ours)
    until = _until(machine, queue.main, now)
    later = {name for name, start in until.items() if start - now >= SHORTEST_S}
    held, spare = queue.held, _spare(machine, queue, ours)
    asked = (machine, queue, partition, ours, later, queue.parts.keys() | spare.keys())
    why = _why_not(*asked, machine.nodes, held)
    known = known or Known()
    walk = claims.walked(
        claims.in_order(claims.able(queue.main, now, known.lapsed), machine.partitions),
        machine.nodes,
        machine.partitions,
        _rooms(machine, why, held, queue, spare),
        now,
        known.ready,
        doubted=known.doubted,
        preempting=ours.preempting,
    )
    wanted = walk.found()
    until = _leaving(until, machine, queue.main, held, wanted, ours, now)
    rows = {name: row for name, row in machine.nodes.items() if not watched.isdisjoint(row.partitions)}
    if ours.gpus:
        shut = why | _why_not(*asked, {name: machine.nodes[name] for name in held if name in rows}, ())
        nodes, free = _by_gpu(rows, queue, walk.course, why, shut, until)
    else:
        spared = {name: part for name, part in spare.items() if not why.get(name)}
        free = after_main_jobs(spared, machine.nodes, walk.course.left)
        why |= {name: why.get(name) or USED_UP for name in spare.keys() - free.keys()}
        why |= {name: f"claimed by job {job}" for name, job in wanted.taken.items()}
        nodes = [
            _node(row, why.get(name, ""), until.get(name, inf), queue.running.get(name))
            for name, row in rows.items()
        ]
        nodes = [replace(node, used=_used(rows[node.name], queue)) for node in nodes] if ours.parts else nodes
    gate = Gate(machine, partition, ours)
    snapshot = Snapshot(
        time=now,
        nodes=tuple(gate.told(node, rows[node_of(node.name)]) for node in nodes),
        claims=wanted.claims,
        pilots=tuple(_with_end(pilot, now) for pilot in queue.pilots),
        clearing=queue.clearing,
        main=main_jobs.shown(queue.main, wanted, now),
        waiting=main_jobs.waiting(queue.main),
    )
    return SlurmView(snapshot, wanted, machine.partitions[partition].max_s, free, _shares(rows, free))


def _with_end(pilot: Pilot, now: float) -> Pilot:
    return replace(pilot, ends=None) if (pilot.ends or inf) < now - OVERDUE_S else pilot


def _shares(rows: Mapping[str, NodeRow], parts: Mapping[str, Remaining]) -> dict[str, float]:
    """Return the share of its machine's cores that a pilot has where our others may be beside it: with a part
    of a node, and where several nodes are one machine, as on a testbed."""
    machine_of = {name: row.hosts[0] for name, row in rows.items() if any(row.hosts[:1])}
    on = Counter(machine_of.values())
    shares = {name: 1.0 / on[machine] for name, machine in machine_of.items() if on[machine] > 1}
    for name, part in parts.items():
        row = rows[node_of(name)]
        shares[name] = part.cpus / max(1, row.cpus * row.threads) * shares.get(row.name, 1.0)
    return shares


def _spare(machine: SlurmMachine, queue: JobQueue, ours: SlurmOwnJobs) -> Mapping[str, Remaining]:
    """Return what pilots could take now of nodes that main jobs use in part; with single GPUs, of any."""
    if ours.gpus:
        rows = (row for name, row in machine.nodes.items() if row.gpus and name not in queue.foreign)
        return {row.name: left_of(row) for row in rows}
    return (
        spare_parts(machine.nodes, queue.held.keys() | queue.foreign, queue.rows.values())
        if ours.parts
        else {}
    )


def _leaving(
    until: dict[str, float],
    machine: SlurmMachine,
    main: Sequence[SlurmJobRow],
    held: Collection[str],
    wanted: Claims,
    ours: SlurmOwnJobs,
    now: float,
) -> dict[str, float]:
    """Return when nodes must be given back before main jobs begin. A job that is about to start gets nodes by
    its claims; its other planned nodes do not count. Nor does its part of a node that it shares with pilots
    of single GPUs, where these can be preempted: it claims as many GPUs as it needs."""
    others = [job for job in main if not (ours.gpus and ours.preempting and job.shares)]
    if len(others) < len(main):
        until = _until(machine, others, now)
    if any(job.planned for job in others if job.id in wanted.users):
        apart = _until(machine, [job for job in others if job.id not in wanted.users], now)
        until |= {name: apart.get(name, inf) for name in held if name in until}
    return until


def _by_gpu(
    rows: Mapping[str, NodeRow],
    queue: JobQueue,
    course: QueueState,
    why: Mapping[str, str],
    shut: Mapping[str, str],
    until: Mapping[str, float],
) -> tuple[list[Node], dict[str, Remaining]]:
    """The GPUs of nodes as the nodes of the snapshot, and what the pilot of each has, or may have. No more
    than main jobs leave `why` not, and none beside those that we hold where the node is `shut`."""
    parts = queue.parts
    waiting = {pilot.node: queue.rows[pilot.job] for pilot in queue.pilots if pilot.pending}
    nodes: list[Node] = []
    free: dict[str, Remaining] = {}
    for name, row in rows.items():
        here = GpuPlaces(
            free=course.free(name),
            held=parts.get(name, {}),
            waiting=waiting,
            cleared=queue.cleared,
            why=why.get(name, ""),
            shut=shut.get(name, ""),
        )
        used = _used(row, queue)
        for place in places(row, here):
            gpu = _node(row, place.why, until.get(name, inf), queue.running.get(name))
            own = replace(gpu, gpus=1, cpus=place.cpus, spare=0.0, used=used)
            types = gpus.types(gpus.kinds(place.gres))
            nodes.append(replace(own, name=place.name, gres=place.gres, types=types))
            if place.part is not None:
                free[place.name] = place.part
    return nodes, free


def _used(row: NodeRow, queue: JobQueue) -> float:
    """The share of a node that main jobs use, where our pilots may have others."""
    if row.name in queue.held and row.name not in queue.parts:
        return 0.0
    return used_by_main_jobs(row, queue.parts.get(row.name, {}).values())


def pilot_partition(machine: SlurmMachine, ours: SlurmOwnJobs) -> str:
    """The partition that pilots go to: the one of the settings, or the default one."""
    default = (name for name, partition in machine.partitions.items() if partition.default)
    return ours.partition or next(default, "")


def _why_not(
    machine: SlurmMachine,
    queue: JobQueue,
    partition: str,
    ours: SlurmOwnJobs,
    later: Collection[str],
    parts: Collection[str],
    rows: Mapping[str, NodeRow],
    held: Collection[str],
) -> dict[str, str]:
    """Nodes of `rows` that are not ours -> why. Those of `later` may be planned for main jobs: there is time
    for a pilot before. Main jobs may be on those of `parts`, of which pilots have a part, or could."""
    coming = {node_of(pilot.node) for pilot in queue.pilots if pilot.pending}
    planned = set[str]().union(*{job.planned for job in queue.main if job.state == "PENDING"})
    gate = Gate(machine, partition, ours)
    why: dict[str, str] = {}
    for name, row in rows.items():
        hole = name in later if name in planned else name in coming
        reason = unfit(row, held=name in held, hole=hole, part=name in parts, gpus=ours.gpus)
        if not reason and name in queue.running and name not in parts:  # it started between the two commands
            reason = f"job {queue.running[name].job}"
        reason = reason or gate.shut(row, held=name in held)
        if reason:
            why[name] = reason
    return why


def unfit(
    row: NodeRow, *, held: bool = False, hole: bool = False, part: bool = False, gpus: bool = False
) -> str:
    """Return why a node's state says that it is not ours; "" if it is. One that we hold may be in use, as one
    that is to be ours in `part`; one with a `hole` may be planned. Where single `gpus` are ours, others of
    the node may be cleared away."""
    harmless = HARMLESS | ({"PLANNED"} if held or hole else set()) | ({"COMPLETING"} if gpus else set())
    flags = sorted(row.flags - harmless)
    fit = USABLE if held or part or flags else {"IDLE"}
    words = flags if row.base in fit else [row.base or "no state", *flags]
    return "+".join(words).lower().replace("_", " ")


def _rooms(
    machine: SlurmMachine,
    why: Mapping[str, str],
    held: Mapping[str, float | None],
    queue: JobQueue,
    spare: Collection[str],
) -> Rooms:
    """Return the nodes where a main job could start. One in use by no job of the queue is being cleared."""
    free, coming, shared = [], [], []
    doubted = {
        name for name, row in machine.nodes.items() if row.flags - NODE_FLAGS or row.base not in NODE_STATES
    }
    for name, row in machine.nodes.items():
        if name in held or row.flags - HARMLESS - PASSING:
            continue
        if name in queue.running:
            if row.base == "MIXED" and name not in queue.foreign:
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
        taken=frozenset(queue.running).difference(shared, queue.foreign),
        foreign=(queue.foreign & machine.nodes.keys()) | (doubted - queue.running.keys()),
        parts={name: own for name, own in queue.parts.items() if name in usable},
        spare=frozenset(spare),
        clearing=frozenset(name for name in coming if not _idle(machine.nodes[name])),
    )


def _idle(row: NodeRow) -> bool:
    return row.base == "IDLE" and "COMPLETING" not in row.flags


def _until(machine: SlurmMachine, main: Collection[SlurmJobRow], now: float) -> dict[str, float]:
    """Return when a node is expected to be taken: the first planned start or reservation that is to come."""
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


def _node(row: NodeRow, why: str, until: float, use: JobOnNode | None) -> Node:
    use = use if why else None
    return Node(
        name=row.name,
        state=NodeState.BUSY if why else NodeState.IDLE,
        until=None if until == inf else until,
        partitions=row.partitions,
        features=row.features,
        gres=row.gres,
        gpus=gpus.total(row.gpus),
        types=gpus.types(row.gpus),
        why=why,
        cpus=row.cpus,
        spare=1.0 - row.cpus_used / row.cpus if row.base == "MIXED" and row.cpus else 0.0,
        job=use.job if use else "",
        ends=use.ends if use else None,
    )
