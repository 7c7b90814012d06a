"""The state of a walk through the queue: what the jobs so far have taken, and what remains. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from functools import reduce
from itertools import accumulate, chain, islice
from math import ceil

from bftrainer.model.machine import Claim
from bftrainer.schedulers.shared.claims import Claims
from bftrainer.schedulers.slurm.queue.gpus import ANY
from bftrainer.schedulers.slurm.queue.resources import Remaining, Rooms, left_of, less, together, whole
from bftrainer.schedulers.slurm.rows import NodeRow, SlurmJobRow

NOTHING = Remaining(0, 0, ())
MOST_NODES = 64
"""Nodes among which a main job's claim to one of our GPUs chooses, where a trainer loses least. More would
cost time at every poll."""


class QueueState:
    """Changes with every job that takes nodes.

    Attributes:
        usable: Nodes where a job could start.
        open: Free nodes and ours, as long as no job has taken them.
        left: The rest of nodes that jobs share, with what our pilots have there.
        beside: Resources for jobs beside our pilots that have a part of a node.
        pilots: Those pilots by node, as long as no job needs what they have, and what that is.
        claims, taken, ahead: See `Claims`.
        placed: Jobs that found their nodes.
        waiting: Those of them that need nodes which are not free yet.
    """

    def __init__(self, nodes: Mapping[str, NodeRow], rooms: Rooms) -> None:
        self._nodes, self._rooms = nodes, rooms
        self.usable = set(rooms.all)
        self.open = set(rooms.free | rooms.held)
        self.left = {name: left_of(nodes[name]) for name in rooms.shared}
        self.beside = {name: left_of(nodes[name]) for name in rooms.parts}
        self.pilots = {name: dict(own) for name, own in rooms.parts.items()}
        for name, own in rooms.parts.items():
            all_ = reduce(together, own.values(), self.beside[name])
            if all_.cpus < nodes[name].cpus or all_.memory_mb < nodes[name].memory_mb:
                self.left[name] = all_
        self._several = any(len(own) > 1 for own in self.pilots.values())
        self._known: dict[object, dict[str, tuple[list[str], int]]] = {}  # what goes for what is asked
        self.claims: list[Claim] = []
        self.taken: dict[str, str] = {}
        self.placed: dict[str, str] = {}  # with their users
        self.waiting: set[str] = set()
        self.ahead: set[str] = set()

    def found(self) -> Claims:
        """Return the needs of the jobs so far."""
        ready = frozenset(self.placed.keys() - self.waiting)
        return Claims(tuple(self.claims), self.taken, ready, frozenset(self.ahead), self.placed)

    def copy(self) -> QueueState:
        """As it stands now."""
        other = copy(self)
        other.usable, other.open, other.left = set(self.usable), set(self.open), dict(self.left)
        other.beside, other.pilots = dict(self.beside), {name: dict(own) for name, own in self.pilots.items()}
        other.claims, other.taken, other.placed = list(self.claims), dict(self.taken), dict(self.placed)
        other._known = {}
        other.waiting, other.ahead = set(self.waiting), set(self.ahead)
        return other

    def take(self, job: SlurmJobRow, used: set[str], *, late: bool) -> None:
        """A job takes nodes. One that is `late` has had others before."""
        free = used & self.open & self._rooms.free
        self.taken.update(dict.fromkeys(sorted(free), job.id))
        self.placed[job.id] = job.user
        ours = self.ours(job, used)
        if not late and (ours or used & (self._rooms.clearing | self._rooms.foreign)):
            self.waiting.add(job.id)
        self.open -= used - self.beside.keys()
        for name in ours & self.beside.keys():
            self._give_up(job, name)
        self._consume(job, used)

    def ours(self, job: SlurmJobRow, used: Collection[str]) -> set[str]:
        """Return the nodes on which a job needs what our pilots have."""
        held = self.open.intersection(used, self._rooms.held)
        return {name for name in held if name not in self.beside or not self.beside[name].fits(job)}

    def beside_ours(self, job: SlurmJobRow, room: set[str]) -> set[str]:
        """Return the nodes of a room with other jobs or our pilots, where the job needs nothing of us."""
        known = room & (self.left.keys() | self.beside.keys()) if job.shares else set[str]()
        return known - self.ours(job, known)

    # which of our pilots go

    def going(self, job: SlurmJobRow, name: str) -> tuple[list[str], int]:
        """Return our pilots on a node, smallest first, and how many of them to cancel for a job."""
        if name not in self.pilots:
            return [name], 1
        known = self._known.setdefault((job.shares, job.each), {})
        if name not in known:
            known[name] = self._going(job, name)
        return known[name]

    def _going(self, job: SlurmJobRow, name: str) -> tuple[list[str], int]:
        own = self.pilots[name]
        in_turn = sorted(own, key=lambda pilot: (own[pilot].cpus, own[pilot].memory_mb, pilot))
        if job.shares:
            types = {kind for kind, _ in job.gpus if kind != ANY}
            useful = [pilot for pilot in in_turn if types & {kind for kind, _ in own[pilot].gpus}]
            for among in (useful, in_turn):
                rooms = accumulate((own[pilot] for pilot in among), together, initial=self.beside[name])
                count = next((count for count, room in enumerate(rooms) if room.fits(job)), None)
                if count is not None:
                    return among, count
        return in_turn, len(in_turn)

    def in_turn(self, job: SlurmJobRow, line: Iterator[str]) -> Iterator[str]:
        """The nodes of a line; of those that we hold the ones first that main jobs use in part, then those on
        which the fewest of our pilots go. On the former the scheduler would have put a small job without us:
        one that goes elsewhere is in the way of those that need a whole node."""
        if not self.pilots:
            return line
        before, held, after = list[str](), list[str](), list[str]()
        for name in line:
            (held if name in self._rooms.held else after if held else before).append(name)
        several = self._several
        held.sort(key=lambda name: (name not in self.left, self.going(job, name)[1] if several else 1))
        return chain(before, held, after)

    def claim(self, job: SlurmJobRow, mine: Collection[str], among: Collection[str], each: int) -> None:
        """A job needs what our pilots have on the nodes `mine`; on others `among` ours they would do as
        well, the first `MOST_NODES` of which are named where nodes have several pilots. Each of its tasks
        needs `each` nodes, if it has several. One that has its place on a node that main jobs use in part
        gets it on such a node."""
        alone = job.count == 1
        alike = {name for name in mine if self._is_one(job, name, alone=alone)}
        if alike and alike <= self.left.keys():
            among = self.left.keys() & among
        for name in sorted(set(mine) - alike):
            pilots, count = self.going(job, name)
            self.claims.append(Claim(job=job.id, nodes=frozenset(pilots), count=count))
        if self.pilots and alike:
            fit = (name for name in sorted(among) if self._is_one(job, name, alone=alone))
            most = MOST_NODES if self._several else len(among)
            named = {*islice(fit, most), *alike}
            among = [pilot for name in named for pilot in self.going(job, name)[0]]
        for first in range(0, len(alike), each):
            count = min(each, len(alike) - first)
            self.claims.append(Claim(job=job.id, nodes=frozenset(among), count=count))

    def _is_one(self, job: SlurmJobRow, name: str, *, alone: bool) -> bool:
        """Return whether one pilot is all that has to go on a node, whichever. A job that is not `alone`
        there needs several nodes, so that no two pilots of one may count for it."""
        pilots, count = self.going(job, name)
        return count == 1 and (alone or len(pilots) == 1)

    def _give_up(self, job: SlurmJobRow, name: str) -> None:
        """Remove our pilots from a node, as far as a job needs it."""
        pilots, count = self.going(job, name)
        for pilot in pilots[:count]:
            self.beside[name] = together(self.beside[name], self.pilots[name].pop(pilot))
        self._forget(name)
        if not self.pilots[name]:
            del self.pilots[name], self.beside[name]
            self.open.discard(name)

    def _consume(self, job: SlurmJobRow, used: Collection[str]) -> None:
        if not job.shares:
            self.usable.difference_update(used)
            self.left.update(dict.fromkeys(used, NOTHING))
            return
        cpus = max(1, job.cpus, ceil(job.all_cpus / max(1, len(used))))
        for name in used:
            left = self.left[name] = less(self.left.get(name) or whole(self._nodes[name]), job, cpus)
            if left.cpus <= 0:
                self.usable.discard(name)
            if name in self.beside:
                self.beside[name] = less(self.beside[name], job, cpus)
                self._forget(name)

    def _forget(self, name: str) -> None:
        """Drop what was computed of a node, which has changed."""
        for known in self._known.values():
            known.pop(name, None)

    def clear_ahead(self, job: SlurmJobRow, room: Collection[str]) -> None:
        """Keep all of a room clear for a job that cannot start yet."""
        here = self.open.intersection(room)
        if held := here & self._rooms.held:
            ours = frozenset(pilot for name in held for pilot in self.pilots.get(name, (name,)))
            self.claims.append(Claim(job=job.id, nodes=ours, count=len(ours)))
        self.taken.update(dict.fromkeys(sorted(here & self._rooms.free), job.id))
        self.ahead.add(job.id)
        self.open -= here

    def together(self, ids: Collection[str]) -> None:
        """These parts of one job wait as long as one of them does."""
        if not self.waiting.isdisjoint(ids):
            self.waiting.update(ids)

    def cpus_of(self, name: str) -> int:
        """The CPUs that are left of a node."""
        left = self.left.get(name)
        return left.cpus if left else self._nodes[name].cpus

    def free(self, name: str) -> Remaining:
        """Return what is left of a node for our pilots once the jobs so far have started."""
        left = self.beside.get(name) or self.left.get(name)
        return left_of(self._nodes[name]) if left is None else left
