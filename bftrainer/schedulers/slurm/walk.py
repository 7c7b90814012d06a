"""The walk through the queue: jobs take their nodes one after the other, as Slurm would give them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from math import ceil, inf

from bftrainer.model.machine import Claim
from bftrainer.schedulers.slurm.constraints import UNREADABLE, Features, Part, ways
from bftrainer.schedulers.slurm.fit import Fit
from bftrainer.schedulers.slurm.left import Left, left_of, whole, wish
from bftrainer.schedulers.slurm.rows import JobRow, NodeRow, Partition
from bftrainer.schedulers.slurm.values import names

PLANNED_SOON = ("None", "Priority", "Resources")
"""With another reason the nodes may never come, and Slurm lets the jobs behind it pass."""
OVERDUE_S = 5.0
"""A job that has had all its nodes for so long and has not started needs others: those of Slurm's plan."""
HELPLESS_S = 60.0
"""... and after this all of its partitions, if Slurm says `FIRST` of it and plans nothing."""
MOST_CHOICES = 1_000_000
"""The nodes that all claims together name at most, before further ones name just as many as they need."""
FIRST = "Resources"
"""The reason of the job that Slurm would start next; those behind it may have none that we could help."""
SLACK_S = 900.0
"""Slurm rounds the start that it plans, by bf_resolution: so much after our pilots end it may be."""


Wish = tuple[set[str], Features | None]
"""Nodes that a job takes. Instead of ours among them any with these features will do; None: no other."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """Where a pending main job could start, in the order in which it should take nodes."""

    free: frozenset[str]  # idle
    coming: frozenset[str]  # its last job is being cleared away, or Slurm plans to use it
    held: frozenset[str]  # by running pilots of ours
    reserved: Mapping[str, float] = field(default_factory=dict)  # node -> when a reservation takes it
    shared: frozenset[str] = frozenset()  # main jobs use a part of it
    ends: Mapping[str, float] = field(default_factory=dict)  # held node -> its pilot's end
    flexible: frozenset[str] = frozenset()  # reservations whose jobs need not be on their nodes
    taken: frozenset[str] = frozenset()  # main jobs use all of it
    foreign: frozenset[str] = frozenset()  # held by pilots of other daemons, which give it up as we do
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


@dataclass(frozen=True, slots=True)
class Claims:
    """What pending main jobs would need: nodes of ours, and free nodes."""

    claims: tuple[Claim, ...] = ()
    taken: Mapping[str, str] = field(
        default_factory=dict
    )  # free node -> the job that is about to start there
    ready: frozenset[str] = frozenset()  # jobs that need no other nodes than these

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs that are expected to start now."""
        return frozenset(claim.job for claim in self.claims) | frozenset(self.taken.values())


class Walk:
    """Starts jobs, each on nodes that no job before it needs. `open`: there are nodes, free ones or ours,
    that no job has taken."""

    def __init__(
        self,
        nodes: Mapping[str, NodeRow],
        partitions: Mapping[str, Partition],
        rooms: Rooms,
        now: float,
        ready: Mapping[str, float],
    ) -> None:
        self._nodes, self._rooms = nodes, rooms
        self._now, self._since = now, ready
        self._usable_now = set(rooms.all)
        self.open = set(rooms.free | rooms.held)
        self._left = {name: left_of(nodes[name]) for name in rooms.shared}
        self._kept = dict(rooms.reserved)  # node -> until when lower jobs may use it
        self._fit = Fit({name: nodes[name] for name in rooms.all}, partitions)
        self._line = sorted(rooms.all, key=lambda name: (rooms.rank(name), name))
        self._ours: dict[object, frozenset[str]] = {}  # what may be claimed, by what is asked for
        self._room = MOST_CHOICES
        self._failed: set[object] = set()  # what jobs asked for that found no place
        self._claims: list[Claim] = []
        self._taken: dict[str, str] = {}
        self._placed: set[str] = set()
        self._waiting: set[str] = set()  # jobs that need nodes which are not free yet

    def found(self) -> Claims:
        """What the jobs so far need."""
        return Claims(tuple(self._claims), self._taken, frozenset(self._placed - self._waiting))

    def in_vain(self, job: JobRow) -> bool:
        """Whether a job asks for no less than another that found no place."""
        return not job.planned and wish(job) in self._failed

    def start(self, job: JobRow, *, placeable: bool) -> bool:
        """Start the job if it could be; else keep its nodes from those behind it. A job that is not
        `placeable` only goes where Slurm plans it."""
        late_s = self._now - self._since.get(job.id, self._now)
        unclear = bool(job.features) and ways(job.features) == UNREADABLE
        if (late_s >= OVERDUE_S or unclear) and self._as_planned(job, late=late_s >= OVERDUE_S):
            return True
        if placeable:
            if late_s >= HELPLESS_S and job.reason == FIRST and not job.planned:
                return self._everywhere(job)
            if any(self._place(job, way) for way in ways(job.features)):
                return True
        if self._as_planned(job):
            return True
        if not job.planned:
            self._failed.add(wish(job))
        if placeable:
            self._block(job)
        return False

    def start_many(self, job: JobRow) -> int:
        """Start as many tasks of an array as find whole nodes at once; returns how many."""
        tasks = min(job.tasks, len(self.open) // job.count)
        several = job.shares or job.required or job.planned or job.id in self._since
        while tasks > 1 and not several:
            together = replace(job, count=tasks * job.count, all_cpus=tasks * job.all_cpus)
            way = ways(job.features)[0]
            if not way[0].count and self._place(together, way, each=job.count):
                return tasks
            tasks //= 2
        return 0

    # three ways to place a job

    def _place(self, job: JobRow, way: tuple[Part, ...], each: int = 0) -> bool:
        """On nodes that it can use, as far as squeue says what these are."""
        fit = [self._usable(job, part.features) for part in way]
        usable = fit[0].union(*fit[1:]) if len(fit) > 1 else fit[0]
        required = names(job.required)
        if required is None or not required <= usable:
            return False
        chosen = set(required)
        wishes: list[Wish] = [(set(required), None)]
        for part, room in zip(way, fit, strict=True):
            if part.count:
                picked = set(islice(self._ranked(job, room - chosen), part.count))
                if len(picked) < part.count:
                    return False
                wishes.append((picked, part.features))
                chosen |= picked
        rest = self._rest(job, chosen, self._ranked(job, usable - chosen if chosen else usable))
        if rest is None:
            return False
        either = tuple(features for part in way for features in part.features)
        self._use(job, [*wishes, (rest, either)], each=each)
        return True

    def _rest(self, job: JobRow, chosen: Collection[str], ranked: Iterable[str]) -> set[str] | None:
        """The first of `ranked` that it takes beside `chosen`; None if they are not enough."""
        picked: set[str] = set()
        cpus = sum(map(self._cpus, chosen))
        for name in ranked:
            if len(chosen) + len(picked) >= job.count and cpus >= job.all_cpus:
                break
            picked.add(name)
            cpus += self._cpus(name)
        enough = len(chosen) + len(picked) >= job.count and cpus >= job.all_cpus
        return picked if enough else None

    def _as_planned(self, job: JobRow, *, late: bool = False) -> bool:
        """Exactly where Slurm plans it, if nothing but our pilots keeps it from there."""
        planned, held = set(job.planned), self._rooms.held & self.open
        if not planned or job.start is None or not (late or planned & held):
            return False
        gone = planned - self._usable_now
        if gone & (self._rooms.all | self._rooms.taken):  # jobs before it, or jobs that run, have these
            return False
        here = planned & self._usable_now
        if any(name in self._left and not self._left[name].fits(job) for name in here):
            return False
        if not job.reservation and any(self._kept.get(name, inf) < self._ends(job) for name in here):
            return False
        ours = [self._rooms.ends.get(name, inf) for name in planned & held]
        if ours and job.start > max(ours) + SLACK_S:
            return False
        self._use(job, [(here, None)], late=late)
        return True

    def _everywhere(self, job: JobRow) -> bool:
        """On every node of its partitions: nobody knows which ones it needs."""
        room = self._fit.everywhere(job) & self._usable_now - self._left.keys()
        if len(room) < job.count:
            return False
        self._use(job, [(set(room), None)], late=True)
        return True

    # what they have in common

    def _use(self, job: JobRow, wishes: Collection[Wish], *, late: bool = False, each: int = 0) -> None:
        """Take nodes for a job. It claims as many of ours: these, or any with such features. One that is
        `late` has had others before. Its tasks need `each` so many, if it has several."""
        used = set().union(*(nodes for nodes, _ in wishes))
        each = max(1, each or len(used))
        ours = used & self.open & self._rooms.held
        for nodes, features in wishes:
            if mine := nodes & ours:
                among = self._candidates(job, features) if features and self._room else frozenset(mine)
                for first in range(0, len(mine), each):
                    count = min(each, len(mine) - first)
                    self._claims.append(Claim(job=job.id, nodes=among, count=count))
        free = used & self.open & self._rooms.free
        self._taken.update(dict.fromkeys(sorted(free), job.id))
        self._placed.add(job.id)
        if not late and used & (ours | self._rooms.clearing | self._rooms.foreign):
            self._waiting.add(job.id)
        self.open -= used
        self._consume(job, used)

    def _consume(self, job: JobRow, used: Collection[str]) -> None:
        if not job.shares:
            self._usable_now.difference_update(used)
            return
        cpus = max(1, job.cpus, ceil(job.all_cpus / max(1, len(used))))
        for name in used:
            left = self._left.get(name) or whole(self._nodes[name])
            if left.cpus <= cpus:
                self._usable_now.discard(name)
            else:
                memory, gpus = left.memory_mb - job.memory_mb, left.gpus - job.gpus
                self._left[name] = Left(left.cpus - cpus, memory, gpus)

    def _block(self, job: JobRow) -> None:
        """Keep the nodes of a job that waits, from its expected start on. Before Slurm has planned it, no job
        behind it starts where this one could."""
        if job.planned and job.start is not None:
            self._ours.clear()
            for name in self._usable_now.intersection(job.planned):
                self._kept[name] = min(self._kept.get(name, inf), job.start)
        elif job.reason in PLANNED_SOON:
            for way in ways(job.features):
                for part in way:
                    eligible = self._fit.nodes(job, part.features)
                    self._usable_now -= eligible
                    self.open -= eligible

    def _ends(self, job: JobRow) -> float:
        return self._now + (inf if job.limit_s is None else job.limit_s)

    def _candidates(self, job: JobRow, features: Features) -> frozenset[str]:
        """The nodes of ours on which the job may run: one set for all jobs that ask for the same."""
        ends = self._ends(job) if self._kept and not job.reservation else 0.0
        key = (job.partitions, features, job.cpus, job.memory_mb, job.gpus, job.excluded, ends)
        if key not in self._ours:
            brief = {name for name, moment in self._kept.items() if moment < ends}
            found = frozenset((self._fit.nodes(job, features) & self._rooms.held) - brief)
            self._room = max(0, self._room - len(found))
            self._ours[key] = found
        return self._ours[key]

    def _ranked(self, job: JobRow, room: set[str]) -> Iterator[str]:
        """The nodes of a room, those first that the job should take first."""
        if job.planned:
            first = {name: i for i, name in enumerate(job.planned)}
            return iter(
                sorted(
                    room,
                    key=lambda name: (
                        name not in self._left,
                        self._rooms.rank(name),
                        first.get(name, len(first)),
                        name,
                    ),
                )
            )
        if 2 * len(self._usable_now) < len(self._line):
            self._line = [name for name in self._line if name in self._usable_now]
        shared = sorted(room & self._left.keys()) if job.shares else []
        return chain(shared, (name for name in self._line if name in room and name not in self._left))

    def _cpus(self, name: str) -> int:
        left = self._left.get(name)
        return left.cpus if left else self._nodes[name].cpus

    def _usable(self, job: JobRow, features: Features) -> set[str]:
        """Where a job can start now."""
        room = self._usable_now & self._fit.nodes(job, features)
        if self._kept and not job.reservation:
            ends = self._ends(job)
            room -= {name for name, moment in self._kept.items() if moment < ends}
        if self._left:
            room -= {name for name, left in self._left.items() if name in room and not left.fits(job)}
        return room
