"""How a walk through the queue stands: what the jobs so far have taken, and what is left. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from math import ceil

from bftrainer.model.machine import Claim
from bftrainer.schedulers.shared.wanted import Claims
from bftrainer.schedulers.slurm.gpus import without
from bftrainer.schedulers.slurm.left import Left, left_of, together, whole
from bftrainer.schedulers.slurm.rooms import Rooms
from bftrainer.schedulers.slurm.rows import JobRow, NodeRow


class Course:
    """Changes with every job that takes nodes.

    Attributes:
        usable: Nodes where a job could start.
        open: Free nodes and ours, as long as no job has taken them.
        left: What is left of nodes that jobs share, with what pilots of ours have there.
        beside: What jobs find beside pilots of ours that have a part of a node.
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
        for name, part in rooms.parts.items():
            both = together(self.beside[name], part)
            if both.cpus < nodes[name].cpus or both.memory_mb < nodes[name].memory_mb:
                self.left[name] = both
        self.claims: list[Claim] = []
        self.taken: dict[str, str] = {}
        self.placed: dict[str, str] = {}  # with their users
        self.waiting: set[str] = set()
        self.ahead: set[str] = set()

    def found(self) -> Claims:
        """What the jobs so far need."""
        ready = frozenset(self.placed.keys() - self.waiting)
        return Claims(tuple(self.claims), self.taken, ready, frozenset(self.ahead), self.placed)

    def copy(self) -> Course:
        """As it stands now."""
        other = copy(self)
        other.usable, other.open, other.left = set(self.usable), set(self.open), dict(self.left)
        other.beside = dict(self.beside)
        other.claims, other.taken, other.placed = list(self.claims), dict(self.taken), dict(self.placed)
        other.waiting, other.ahead = set(self.waiting), set(self.ahead)
        return other

    def take(self, job: JobRow, used: set[str], *, late: bool) -> None:
        """A job takes nodes. One that is `late` has had others before."""
        free = used & self.open & self._rooms.free
        self.taken.update(dict.fromkeys(sorted(free), job.id))
        self.placed[job.id] = job.user
        ours = self.ours(job, used)
        if not late and (ours or used & (self._rooms.clearing | self._rooms.foreign)):
            self.waiting.add(job.id)
        self.open -= used - (self.beside.keys() - ours)
        for name in ours & self.beside.keys():
            del self.beside[name]  # its pilot goes
        self._consume(job, used)

    def ours(self, job: JobRow, used: Collection[str]) -> set[str]:
        """Those of the nodes on which a job needs what pilots of ours have."""
        held = self.open.intersection(used, self._rooms.held)
        return {name for name in held if name not in self.beside or not self.beside[name].fits(job)}

    def beside_ours(self, job: JobRow, room: set[str]) -> set[str]:
        """Those of a room where other jobs or pilots of ours are, and the job needs nothing of ours."""
        known = room & (self.left.keys() | self.beside.keys()) if job.shares else set[str]()
        return known - self.ours(job, known)

    def _consume(self, job: JobRow, used: Collection[str]) -> None:
        if not job.shares:
            self.usable.difference_update(used)
            return
        cpus = max(1, job.cpus, ceil(job.all_cpus / max(1, len(used))))
        for name in used:
            left = self.left[name] = _less(self.left.get(name) or whole(self._nodes[name]), job, cpus)
            if left.cpus <= 0:
                self.usable.discard(name)
            if name in self.beside:
                self.beside[name] = _less(self.beside[name], job, cpus)

    def clear_ahead(self, job: JobRow, room: Collection[str]) -> None:
        """Keep all of a room clear for a job that cannot start yet."""
        here = self.open.intersection(room)
        if ours := frozenset(here & self._rooms.held):
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


def _less(left: Left, job: JobRow, cpus: int) -> Left:
    """What is left once a job has taken so many CPUs and what else it asks for."""
    memory_mb = max(0, left.memory_mb - job.memory_mb)
    return Left(max(0, left.cpus - cpus), memory_mb, without(left.gpus, job.gpus))
