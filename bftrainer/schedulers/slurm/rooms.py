"""Where pending main jobs could start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bftrainer.schedulers.slurm.left import Parts


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
    parts: Parts = field(default_factory=dict)  # those of which our pilots do not have all
    spare: frozenset[str] = frozenset()  # of the free and shared ones: those of which pilots may take parts
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
