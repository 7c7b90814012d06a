"""The trainers that wait, in lines of those that are alike to the allocators. Pure.

Of trainers that differ in nothing but their age, the older come first in every plan: a pool of n nodes
has room for the first n / n_min of a line, and the others need not be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bftrainer.model.trainer import Trainer

Shape = tuple[Any, ...]


def shape(trainer: Trainer) -> Shape:
    """All of a trainer without nodes that matters to its worth, but its age."""
    s = trainer.spec
    given = (s.scalability, s.curve, s.curves, s.costs, s.program)
    return (given, s.n_min, s.n_max, s.weight, s.priority, s.user, trainer.observed)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Trainers by shape, each line in order of arrival."""

    lines: Mapping[Shape, tuple[Trainer, ...]] = field(default_factory=dict)
    shapes: Mapping[int, Shape] = field(default_factory=dict)

    def __contains__(self, trainer: int) -> bool:
        return trainer in self.shapes

    def __len__(self) -> int:
        return len(self.shapes)

    def __iter__(self) -> Iterator[Trainer]:
        """Highest priority first, then in order of arrival."""
        return iter(sorted((t for line in self.lines.values() for t in line), key=rank))

    def add(self, trainer: Trainer) -> Backlog:
        kind = shape(trainer)
        line = (*self.lines.get(kind, ()), trainer)
        return replace(self, lines={**self.lines, kind: line}, shapes={**self.shapes, trainer.id: kind})

    def remove(self, trainer: int) -> Backlog:
        kind = self.shapes[trainer]
        line = tuple(t for t in self.lines[kind] if t.id != trainer)
        lines = {k: v for k, v in self.lines.items() if k != kind} | ({kind: line} if line else {})
        return Backlog(lines, {i: k for i, k in self.shapes.items() if i != trainer})

    def first(self) -> Trainer | None:
        """Who is next."""
        return min((line[0] for line in self.lines.values()), key=rank, default=None)

    def eligible(self, pool_size: int) -> list[Trainer]:
        """Those that a plan over `pool_size` nodes may have to consider, in order."""
        heads = (t for line in self.lines.values() for t in line[: pool_size // line[0].spec.n_min])
        return sorted(heads, key=rank)


def rank(trainer: Trainer) -> tuple[float, float, int]:
    """The order of the queue."""
    return -trainer.spec.priority, trainer.submitted_at, trainer.id
