"""The walk through the queue: jobs take their nodes one after the other, as Slurm would give them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, product
from math import inf

from bftrainer.schedulers.shared.claims import Claims
from bftrainer.schedulers.slurm.queue.constraints import UNREADABLE, Features, Part, stretch, ways
from bftrainer.schedulers.slurm.queue.fit import NodeFit
from bftrainer.schedulers.slurm.queue.requests import spread
from bftrainer.schedulers.slurm.queue.resources import Rooms, wish
from bftrainer.schedulers.slurm.queue.state import QueueState
from bftrainer.schedulers.slurm.rows import NodeRow, Partition, SlurmJobRow
from bftrainer.schedulers.slurm.values import names

PLANNED_SOON = ("None", "Priority", "Resources")
"""With another reason the nodes may never come, and Slurm lets the jobs behind it pass."""
AHEAD_S = 300.0
"""Seconds before its planned start when nodes are cleared for a heterogeneous job, where it preempts."""
OVERDUE_S = 5.0
"""Seconds after which a job that has all its nodes and has not started needs others: those of Slurm's plan. A
heterogeneous one has `HELPLESS_S`."""
HELPLESS_S = 60.0
"""... and after this all of its partitions, if Slurm says `FIRST` of it and plans nothing."""
MOST_CHOICES = 1_000_000
"""The nodes that all claims together name at most, before further ones name just as many as they need."""
FIRST = "Resources"
"""The reason of the job that Slurm would start next; those behind it may have none that we could help."""
SLACK_S = 900.0
"""Seconds after our pilots' ends that a planned start may be, as Slurm rounds it by bf_resolution."""


Wish = tuple[set[str], Features | None]
"""Nodes that a job takes. Others with these features will do in place of pilots' nodes; None: no other."""


class Walk:
    """Starts jobs, each on nodes that no job before it needs: `course` is how that stands. `preempting`: main
    jobs may preempt our pilots."""

    def __init__(
        self,
        nodes: Mapping[str, NodeRow],
        partitions: Mapping[str, Partition],
        rooms: Rooms,
        now: float,
        ready: Mapping[str, float],
        *,
        preempting: bool = False,
    ) -> None:
        self._nodes, self._rooms, self._preempting = nodes, rooms, preempting
        self._now, self._since = now, ready
        self.course = QueueState(nodes, rooms)
        self._kept = dict(rooms.reserved)  # node -> until when lower jobs may use it
        self._fit = NodeFit({name: nodes[name] for name in rooms.all}, partitions)
        self._line = sorted(rooms.all, key=lambda name: (rooms.rank(name), name))
        self._ours: dict[object, frozenset[str]] = {}  # what may be claimed, by what is asked for
        self._room = MOST_CHOICES
        self._failed: set[object] = set()  # what jobs asked for that found no place

    def found(self) -> Claims:
        """Return the needs of the jobs so far."""
        return self.course.found()

    @property
    def open(self) -> set[str]:
        """Free nodes and ours that no job has taken, and those of which a part may become ours."""
        return self.course.open | (self.course.usable & self._rooms.spare)

    def in_vain(self, parts: Sequence[SlurmJobRow]) -> bool:
        """Return whether a job asks for no less than another that found no place."""
        if any(part.planned for part in parts):
            return False
        return tuple(map(wish, parts)) in self._failed or any((wish(part),) in self._failed for part in parts)

    def start(self, parts: Sequence[SlurmJobRow], *, placeable: bool) -> bool:
        """Start a job if it could be; else keep its nodes from those behind it. One that is not `placeable`
        only goes where Slurm plans it. The parts of a heterogeneous job start together or not at all."""
        before = self.course.copy() if len(parts) > 1 else None
        if all(self._start(part, placeable=placeable) for part in parts):
            self.course.together({part.id for part in parts})
            return True
        if before is not None:
            self.course = before
            if self._preempting:
                self._clear_ahead(parts)
        if not any(part.planned for part in parts):
            self._failed.add(tuple(map(wish, parts)))
        if placeable:
            for part in parts:
                self._block(part)
        return False

    def _start(self, job: SlurmJobRow, *, placeable: bool) -> bool:
        if job.shares is None:  # nodes that it could have alone would do if it shares them
            return any(self._start(replace(job, shares=so), placeable=placeable) for so in (False, True))
        late_s = self._now - self._since.get(job.id, self._now)
        alone = job.whole == job.id  # else only backfill starts it, which takes its time
        overdue = late_s >= (OVERDUE_S if alone else HELPLESS_S)
        unclear = bool(job.features) and ways(job.features) == UNREADABLE
        if (overdue or unclear) and self._as_planned(job, late=overdue):
            return True
        if placeable and late_s >= HELPLESS_S and alone and job.reason == FIRST and not job.planned:
            return self._everywhere(job)
        shapes = product(spread(job, len(self.course.usable)), ways(job.features)) if placeable else ()
        return any(self._place(*shape) for shape in shapes) or self._as_planned(job)

    def start_many(self, job: SlurmJobRow) -> int:
        """Start as many tasks of an array as find whole nodes at once; returns how many."""
        tasks = min(job.tasks, len(self.course.open) // job.count)
        several = job.shares or job.required or job.planned or job.contiguous or job.id in self._since
        while tasks > 1 and not several:
            together = replace(job, count=tasks * job.count, all_cpus=tasks * job.all_cpus)
            way = ways(job.features)[0]
            if not way[0].count and self._place(together, way, each=job.count):
                return tasks
            tasks //= 2
        return 0

    # three ways to place a job

    def _place(self, job: SlurmJobRow, way: tuple[Part, ...], each: int = 0) -> bool:
        """On nodes that it can use, as far as squeue says what these are."""
        fit = [self._usable(job, part.features) for part in way]
        usable = fit[0].union(*fit[1:]) if len(fit) > 1 else fit[0]
        required = names(job.required)
        if required is None or not required <= usable:
            return False
        if job.contiguous:
            return not any(part.count for part in way) and self._side_by_side(job, usable, required)
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

    def _side_by_side(self, job: SlurmJobRow, usable: set[str], required: Collection[str]) -> bool:
        given_up = self._rooms.held | self._rooms.foreign
        found = stretch(
            self._nodes,
            usable,
            count=job.count,
            cpus=job.all_cpus,
            required=required,
            cpus_of=self.course.cpus_of,
            price_of=lambda name: int(name in given_up),
        )
        if found is not None:
            self._use(job, [(found, None)])
        return found is not None

    def _rest(self, job: SlurmJobRow, chosen: Collection[str], ranked: Iterable[str]) -> set[str] | None:
        """The first of `ranked` that it takes beside `chosen`; None if they are not enough."""
        picked: set[str] = set()
        cpus = sum(map(self.course.cpus_of, chosen))
        for name in ranked:
            if len(chosen) + len(picked) >= job.count and cpus >= job.all_cpus:
                break
            picked.add(name)
            cpus += self.course.cpus_of(name)
        enough = len(chosen) + len(picked) >= job.count and cpus >= job.all_cpus
        return picked if enough else None

    def _as_planned(self, job: SlurmJobRow, *, late: bool = False) -> bool:
        """Exactly where Slurm plans it, if nothing but our pilots keeps it from there."""
        planned, held = set(job.planned), self._rooms.held & self.course.open
        if not planned or job.start is None or not (late or planned & held):
            return False
        gone = planned - self.course.usable
        if gone & (self._rooms.all | self._rooms.taken):  # jobs before it, or jobs that run, have these
            return False
        here = planned & self.course.usable
        if any(name in self.course.left and not self.course.left[name].fits(job) for name in here):
            return False
        if not job.reservation and any(self._kept.get(name, inf) < self._ends(job) for name in here):
            return False
        ours = [self._rooms.ends.get(name, inf) for name in planned & held]
        if ours and job.start > max(ours) + SLACK_S:
            return False
        self._use(job, [(here, None)], late=late)
        return True

    def _everywhere(self, job: SlurmJobRow) -> bool:
        """On every node of its partitions: nobody knows which ones it needs."""
        room = self._fit.everywhere(job) & self.course.usable - self.course.left.keys()
        if len(room) < job.count:
            return False
        self._use(job, [(set(room), None)], late=True)
        return True

    def _clear_ahead(self, parts: Sequence[SlurmJobRow]) -> None:
        """Clear all that a heterogeneous job could use which Slurm will start soon. For Slurm starts one part
        beside our pilots, preempts them for the next, whose start then fails, and has the whole job wait for
        two minutes."""
        if any(part.start is None or part.start > self._now + AHEAD_S for part in parts):
            return
        kinds = [(part, kind.features) for part in parts for way in ways(part.features) for kind in way]
        room = set[str]().union(*(self._fit.nodes(part, features) for part, features in kinds))
        self.course.clear_ahead(parts[0], room)

    # what they have in common

    def _use(self, job: SlurmJobRow, wishes: Collection[Wish], *, late: bool = False, each: int = 0) -> None:
        """Take nodes for a job. It claims pilots' nodes: these, or any with such features. One that
        is `late` has had others before. Each of its tasks needs `each`, if it has several."""
        used = set().union(*(nodes for nodes, _ in wishes))
        each = max(1, each or len(used))
        ours = self.course.ours(job, used)
        for nodes, features in wishes:
            if mine := nodes & ours:
                among = self._candidates(job, features) if features and self._room else frozenset(mine)
                self.course.claim(job, mine, among, each)
        self.course.take(job, used, late=late)

    def _block(self, job: SlurmJobRow) -> None:
        """Keep the nodes of a job that waits, from its expected start on. Before Slurm has planned it, no job
        behind it starts where this one could."""
        if job.planned and job.start is not None:
            self._ours.clear()
            for name in self.course.usable.intersection(job.planned):
                self._kept[name] = min(self._kept.get(name, inf), job.start)
        elif job.reason in PLANNED_SOON:
            for way in ways(job.features):
                for part in way:
                    eligible = self._fit.nodes(job, part.features)
                    self.course.usable -= eligible
                    self.course.open -= eligible

    def _ends(self, job: SlurmJobRow) -> float:
        return self._now + (inf if job.limit_s is None else job.limit_s)

    def _candidates(self, job: SlurmJobRow, features: Features) -> frozenset[str]:
        """Return our nodes on which the job may run: one set for all jobs that ask for the same."""
        ends = self._ends(job) if self._kept and not job.reservation else 0.0
        key = (job.partitions, features, job.each, job.excluded, ends)
        if key not in self._ours:
            brief = {name for name, moment in self._kept.items() if moment < ends}
            found = frozenset((self._fit.nodes(job, features) & self._rooms.held) - brief)
            self._room = max(0, self._room - len(found))
            self._ours[key] = found
        if not self._rooms.parts:
            return self._ours[key]
        left = self.course.left
        return frozenset(name for name in self._ours[key] if name not in left or left[name].fits(job))

    def _ranked(self, job: SlurmJobRow, room: set[str]) -> Iterator[str]:
        """The nodes of a room, those first that the job should take first."""
        beside = self.course.beside_ours(job, room)
        if job.planned:
            first = {name: i for i, name in enumerate(job.planned)}
            return iter(
                sorted(
                    room,
                    key=lambda name: (
                        name not in beside,
                        self._rooms.rank(name),
                        first.get(name, len(first)),
                        name,
                    ),
                )
            )
        if 2 * len(self.course.usable) < len(self._line):
            self._line = [name for name in self._line if name in self.course.usable]
        line = (name for name in self._line if name in room and name not in beside)
        return chain(sorted(beside), self.course.in_turn(job, line))

    def _usable(self, job: SlurmJobRow, features: Features) -> set[str]:
        """Return the nodes where a job can start now."""
        room = self.course.usable & self._fit.nodes(job, features)
        if self._kept and not job.reservation:
            ends = self._ends(job)
            room -= {name for name, moment in self._kept.items() if moment < ends}
        if self.course.left:
            room -= {name for name, left in self.course.left.items() if name in room and not left.fits(job)}
        return room
