"""From what LSF shows to what bftrainer works with: hosts that may be ours or why not, our pilots, and the
claims of main jobs. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Node, NodeState, Pilot, Slot, Snapshot
from bftrainer.model.main_jobs import JobOnNode, MainJob, jobs_on_nodes
from bftrainer.schedulers.lsf import values
from bftrainer.schedulers.lsf.pilot import NAME, named
from bftrainer.schedulers.lsf.queue import backfill_windows, claims, places
from bftrainer.schedulers.lsf.rows import BackfillWindow, Gpus, HostRow, LsfJobRow, PlannedStart, QueueRow
from bftrainer.schedulers.shared.batch import BatchView
from bftrainer.schedulers.shared.claims import Claims, Known

IDLE = frozenset({"ok", "closed_Full"})
"""Statuses of hosts without a job: slots that LSF reserves for a pending job count as used, though a job that
ends in time may have them."""
HELD = frozenset({"ok", "closed_Full", "closed_Excl", "closed_Busy", "closed_cu_Excl"})
"""Statuses that our pilot can give its host."""
NO_SLOTS, NO_LIMIT = "it has no slots (MAX 0)", "bhosts tells no limit of its slots (MAX)"
REMEDIES = {NO_SLOTS: "watch hosts that have some (lsf_hosts, lsf_select)", NO_LIMIT: "set MXJ in lsb.hosts"}
NO_GPUS = Gpus(0)
LATELY_S = 120.0
"""A job that started longer ago has been seen at an earlier poll, or nobody knows how long it waited."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The output of LSF's commands at one poll."""

    hosts: Mapping[str, HostRow]
    jobs: tuple[LsfJobRow, ...]
    queues: Mapping[str, QueueRow] = field(default_factory=dict)
    windows: tuple[BackfillWindow, ...] = ()
    plans: tuple[PlannedStart, ...] = ()
    gpus: Mapping[str, Gpus] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LsfOwnJobs:
    """Recognises our jobs: pilots `bftrainer-<instance>-<tag>-<host>` of these users (None: of any).

    `launch` are patterns of hosts that only launch jobs, `launch_slots` what every job asks for there.
    `gpus`: pilots have single GPUs, and no whole host (`share: gpu`).
    """

    instance: str
    user: str
    users: frozenset[str] | None
    launch: tuple[str, ...] = ()
    launch_slots: int = 0
    gpus: bool = False

    def host(self, node: str) -> str:
        """Return a pilot's host; that of a single GPU is on its host if single ones are shared out."""
        return node_of(node) if self.gpus else node


@dataclass(frozen=True, slots=True)
class LsfView(BatchView):
    """One poll, and for which job hosts are kept whose pilots of single GPUs have ended."""

    kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def until(self) -> dict[str, float]:
        """Return when hosts are expected to be taken."""
        return {node_of(node.name): node.until for node in self.snapshot.nodes if node.until is not None}

    @property
    def ends_before(self) -> dict[str, float]:
        """Return when the main jobs on hosts reach their run limits."""
        return {node_of(node.name): node.ends for node in self.snapshot.nodes if node.ends is not None}


def interpret(
    shown: Shown,
    ours: LsfOwnJobs,
    *,
    now: float,
    known: Known | None = None,
    before: Mapping[str, float] | None = None,
    ends_before: Mapping[str, float] | None = None,
    kept: Mapping[str, str] | None = None,
) -> LsfView:
    """The snapshot. `known`: what earlier polls say of main jobs; `before`: when hosts were expected to be
    taken; `ends_before`, `kept`: see the last view's."""
    hosts = {name: row for name, row in shown.hosts.items() if not values.is_launch(name, ours.launch)}
    found = pilots(shown.jobs, ours, now)
    mine = {pilot.job for pilot in found}
    main = [job for job in shown.jobs if job.id not in mine and not NAME.fullmatch(job.name)]
    running = _running(shown.jobs, mine, ours, now, ends_before or {})
    held = {ours.host(pilot.node) for pilot in found if not pilot.pending}
    stopped = {ours.host(pilot.node): pilot.pending for pilot in found if pilot.pending}
    why = {
        name: said
        for name, row in hosts.items()
        if (said := _why_not(row, held=name in held, running=running, stopped=stopped))
    }
    until = _until(hosts, why, held, shown, now, before or {})
    free = {name: row.slots for name, row in hosts.items() if name not in why and name not in held}
    shared = running.keys() ^ held if ours.gpus else running.keys() - held  # by main jobs, or by pilots
    each = _usual(row.slots for row in hosts.values())
    wanted = claims.claims(
        main,
        shown.queues,
        free,
        {name: hosts[name].slots for name in held if name in hosts and name not in why},
        slots=each,
        launch_slots=ours.launch_slots,
        known=known or Known(),
        now=now,
        spare=[_spare(row) for name, row in hosts.items() if name in shared],
    )
    going: Mapping[str, str] = {}
    if ours.gpus:
        wanted, going = places.by_gpu(wanted, _by_host(found), free, kept or {})
        nodes = _by_gpu(hosts, shown, found, why, until, going)
    else:
        nodes = [
            _node(row, why.get(name, ""), until.get(name), shown.gpus.get(name, NO_GPUS))
            for name, row in hosts.items()
        ]
    in_use = ((node, running.get(node_of(node.name))) for node in nodes)
    nodes = [replace(node, job=use.job, ends=use.ends) if use and node.why else node for node, use in in_use]
    snapshot = Snapshot(
        time=now,
        nodes=tuple(nodes),
        claims=wanted.claims,
        pilots=found,
        main=tuple(_main_job(job, ours, each) for job in main if _counts(job, wanted, now)),
        waiting=frozenset(job.id for job in main if job.pending),
    )
    return LsfView(snapshot, wanted, going)


def _running(
    jobs: Iterable[LsfJobRow],
    mine: Collection[str],
    ours: LsfOwnJobs,
    now: float,
    before: Mapping[str, float],
) -> dict[str, JobOnNode]:
    """Host -> what jobs of others make of it. LSF tells in minutes how long they may still run."""
    found = jobs_on_nodes(
        (
            job.id,
            None if job.left_s is None else now + job.left_s,
            [host for host, _ in values.without_launch(job.hosts, ours.launch)],
        )
        for job in jobs
        if job.id not in mine and not job.pending
    )
    ends = {host: use.ends for host, use in found.items() if use.ends is not None}
    ends = backfill_windows.settled(before, ends)
    return {host: JobOnNode(use.job, ends.get(host)) for host, use in found.items()}


def pilots(jobs: Iterable[LsfJobRow], ours: LsfOwnJobs, now: float) -> tuple[Pilot, ...]:
    """Our pilots; one that was submitted twice is there twice."""
    return tuple(pilot for job in jobs if (pilot := _pilot(job, ours, now)) is not None)


def _pilot(job: LsfJobRow, ours: LsfOwnJobs, now: float) -> Pilot | None:
    told = named(job.name)
    if told is None or told.instance != ours.instance:
        return None
    if ours.users is not None and job.user not in ours.users:
        return None
    where = [host for host, _ in values.without_launch(job.hosts, ours.launch)] or [told.slot.node]
    if len(where) != 1:
        return None  # a job that only has the name: a pilot is on one host
    running = job.state == "RUN" and bool(job.hosts)
    return Pilot(
        tag=told.tag,
        node=str(Slot(where[0], told.slot.gpu)),
        user="" if job.user == ours.user else job.user,
        job=job.id,
        ends=now + job.left_s if running and job.left_s is not None else None,
        pending="" if running else job.reason if job.state == "PEND" and job.reason else job.state.lower(),
    )


def _why_not(
    row: HostRow, *, held: bool, running: Mapping[str, JobOnNode], stopped: Mapping[str, str]
) -> str:
    """Return why a host is not ours; "" if it is."""
    if row.name in running:
        return f"job {running[row.name].job}"
    if row.status not in (HELD if held else IDLE):
        return row.status or "no status"
    if row.active and not held:
        return f"{places.STOPPED} {stopped[row.name]}" if row.name in stopped else places.IN_USE
    if not row.slots:
        return NO_SLOTS if row.limited else NO_LIMIT
    return row.status if row.status == "closed_Full" and not (row.reserved or held) else ""


def _until(
    hosts: Mapping[str, HostRow],
    why: Mapping[str, str],
    held: Collection[str],
    shown: Shown,
    now: float,
    before: Mapping[str, float],
) -> dict[str, float]:
    """Return when hosts are expected to be taken. No window tells of hosts that we hold: for these the last
    one counts that did, and LSF's plans."""
    idle = {name: row for name, row in hosts.items() if name not in why and name not in held}
    mine = {name: row for name, row in hosts.items() if name in held}
    found = backfill_windows.expected(idle, shown.windows, shown.plans, now)
    planned = backfill_windows.expected(mine, (), shown.plans, now)
    kept = {name: before[name] for name in mine if before.get(name, 0.0) > now}
    return backfill_windows.settled(before, {**found, **kept, **planned})


def _spare(row: HostRow) -> int:
    """Return how many slots of a host that others use are free."""
    return max(0, row.slots - row.active - row.reserved) if row.status == "ok" else 0


def _usual(slots: Iterable[int]) -> int:
    """Return how many slots most hosts have, of those that have some: management hosts may have none."""
    counted = Counter(filter(None, slots)).most_common(1)
    return counted[0][0] if counted else 1


def _node(row: HostRow, why: str, until: float | None, gpus: Gpus) -> Node:
    shut = "" if row.slots else NO_SLOTS if row.limited else NO_LIMIT
    return Node(
        name=row.name,
        state=NodeState.IDLE if not why else NodeState.UNUSED if why == shut else NodeState.BUSY,
        shut=f"{shut}; {REMEDIES[shut]}" if shut else "",
        until=until,
        gres=gpus.gres,
        gpus=gpus.count,
        types=(gpus.model,) if gpus.model else (),
        why=why,
        cpus=row.slots,
        spare=max(0.0, 1.0 - row.active / row.slots) if row.active and row.slots else 0.0,
    )


def _by_host(pilots: Iterable[Pilot]) -> Mapping[str, set[str]]:
    """The GPUs of pilots that run, by their hosts."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for pilot in pilots:
        if not pilot.pending:
            found[node_of(pilot.node)].add(pilot.node)
    return found


def _by_gpu(
    hosts: Mapping[str, HostRow],
    shown: Shown,
    pilots: Collection[Pilot],
    why: Mapping[str, str],
    until: Mapping[str, float],
    going: Mapping[str, str],
) -> list[Node]:
    """The GPUs of hosts as the nodes of the snapshot; hosts without GPUs give none. Nothing more is ours of
    hosts that are `going` to main jobs."""
    rows = {job.id: job for job in shown.jobs}
    there: defaultdict[str, list[Pilot]] = defaultdict(list)
    for pilot in pilots:
        there[node_of(pilot.node)].append(pilot)
    nodes = []
    for name, row in hosts.items():
        gpus = shown.gpus.get(name, NO_GPUS)
        own = [(pilot, dict(rows[pilot.job].hosts)) for pilot in there[name]]
        here = places.HostPlaces(
            count=gpus.count,
            held=[pilot.node for pilot, _ in own if not pilot.pending],
            stopped={pilot.node: pilot.pending for pilot, slots in own if pilot.pending and slots},
            waiting=[pilot.node for pilot, slots in own if not slots],
            slots=sum(slots.get(name, 0) for _, slots in own),
            why=why.get(name, ""),
            shut=f"claimed by job {going[name]}" if name in going else "",
        )
        one = replace(gpus, count=1)
        for gpu, reason in places.reasons(row, here).items() if gpus.count else ():
            node = replace(_node(row, reason, until.get(name), one), name=gpu, spare=0.0)
            nodes.append(replace(node, cpus=places.slots_of(row.slots, gpus.count, gpu)))
    return nodes


def _counts(job: LsfJobRow, found: Claims, now: float) -> bool:
    """Return whether it is to be known how long a job waits: it waits for nothing but LSF and hosts that are
    idle or ours, or has just started."""
    if job.pending:
        return job.id in found.ready
    return job.started is not None and now - job.started < LATELY_S + job.rounded_s


def _main_job(job: LsfJobRow, ours: LsfOwnJobs, slots: int) -> MainJob:
    hosts = frozenset(host for host, _ in values.without_launch(job.hosts, ours.launch))
    return MainJob(
        job=job.id,
        nodes=len(hosts) or claims.hosts_of(job, slots, ours.launch_slots),
        submitted=job.submitted,
        started=None if job.pending else job.started,
        on=frozenset() if job.pending else hosts,
        rounded_s=job.rounded_s,
    )
