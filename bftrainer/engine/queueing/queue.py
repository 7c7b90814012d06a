"""The trainers that wait, in lines of those that are alike to the allocators. Pure.

Of trainers that differ in nothing but their age, the older ones come first in every plan, or those that have
most weight by their service or work. A pool of n nodes has room for the first n / n_min of a line, so a plan
need not consider the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Any, TypeVar

from bftrainer.model.trainer import Trainer

K = TypeVar("K")

Shape = tuple[Any, ...]
"""The facts that trainers of one line share."""


def shape(trainer: Trainer) -> Shape:
    """Everything about a waiting trainer that matters to its value, except its age."""
    s = trainer.spec
    given = (s.scalability, s.curve, s.across, s.curves, s.costs, s.program, s.whole, s.workers)
    return (given, s.n_min, s.n_max, s.sizes, s.weight, s.priority, s.user, trainer.observed, trainer.batch)


Class = tuple[float, str]
"""Priority and user."""


@dataclass(frozen=True, slots=True)
class TrainerQueue:
    """Trainers by shape, each line in order of arrival and by id; and the same by priority and user."""

    lines: Mapping[Shape, Mapping[int, Trainer]] = field(default_factory=dict)
    shapes: Mapping[int, Shape] = field(default_factory=dict)
    users: Mapping[Class, Mapping[int, Trainer]] = field(default_factory=dict)

    @classmethod
    def of(cls, trainers: Iterable[Trainer]) -> TrainerQueue:
        """The queue of trainers in order of arrival."""
        lines: dict[Shape, dict[int, Trainer]] = {}
        shapes: dict[int, Shape] = {}
        users: dict[Class, dict[int, Trainer]] = {}
        for trainer in trainers:
            shapes[trainer.id] = kind = shape(trainer)
            lines.setdefault(kind, {})[trainer.id] = trainer
            users.setdefault(class_of(trainer), {})[trainer.id] = trainer
        return cls(lines, shapes, users)

    def __contains__(self, trainer: int) -> bool:
        return trainer in self.shapes

    def __len__(self) -> int:
        return len(self.shapes)

    def __iter__(self) -> Iterator[Trainer]:
        """Highest priority first, then in order of arrival."""
        return iter(sorted((t for line in self.lines.values() for t in line.values()), key=rank))

    def get(self, trainer: int) -> Trainer | None:
        """The trainer with this id, None if it does not wait. Takes the same time however many wait."""
        return self.lines[self.shapes[trainer]][trainer] if trainer in self.shapes else None

    def add(self, trainer: Trainer) -> TrainerQueue:
        """The queue with one more trainer: the last of its line, unless it arrived before others of it."""
        kind, own = shape(trainer), class_of(trainer)
        line = _more(self.lines.get(kind, {}), trainer)
        of_user = _more(self.users.get(own, {}), trainer)
        return TrainerQueue(
            {**self.lines, kind: line}, {**self.shapes, trainer.id: kind}, {**self.users, own: of_user}
        )

    def remove(self, trainer: int) -> TrainerQueue:
        """The queue without a trainer that waits.

        Raises:
            KeyError: it does not wait.
        """
        kind = self.shapes[trainer]
        own = class_of(self.lines[kind][trainer])
        shapes = dict(self.shapes)
        del shapes[trainer]
        return TrainerQueue(_less(self.lines, kind, trainer), shapes, _less(self.users, own, trainer))

    @property
    def counts_workers(self) -> bool:
        """Return whether some trainer asks for several workers on each of its nodes."""
        return any(next(iter(line.values())).spec.workers > 1 for line in self.lines.values())

    def eligible(self, pool_size: int, first: Callable[[Trainer], float] | None = None) -> list[Trainer]:
        """Those that a plan over `pool_size` nodes may have to consider, in order. Of a line, those come
        first for which `first` is least, if it is given."""
        heads = (t for line in self.lines.values() for t in _head(line, pool_size, first))
        return sorted(heads, key=rank)


def _more(line: Mapping[int, Trainer], trainer: Trainer) -> Mapping[int, Trainer]:
    """The line with one trainer more, in order of arrival."""
    late = line and rank(trainer) < rank(next(reversed(line.values())))  # type: ignore[call-overload]
    found = {**line, trainer.id: trainer}
    return dict(sorted(found.items(), key=lambda item: rank(item[1]))) if late else found


def _less(
    lines: Mapping[K, Mapping[int, Trainer]], key: K, trainer: int
) -> Mapping[K, Mapping[int, Trainer]]:
    """The lines without one trainer of the line `key`, and without that line if it was the last."""
    found, line = dict(lines), dict(lines[key])
    del line[trainer]
    if line:
        found[key] = line
    else:
        del found[key]
    return found


def class_of(trainer: Trainer) -> Class:
    """The priority and the user of a trainer."""
    return trainer.spec.priority, trainer.spec.user


def _head(
    line: Mapping[int, Trainer], pool_size: int, first: Callable[[Trainer], float] | None
) -> Iterable[Trainer]:
    """As many of a line as `pool_size` nodes have room for: all of them have the same least size."""
    room = pool_size // next(iter(line.values())).spec.n_min
    if first is None or room >= len(line):
        return islice(line.values(), room)
    return nsmallest(room, line.values(), key=first)  # of equals, those that are first


def rank(trainer: Trainer) -> tuple[float, float, int]:
    """Sorts trainers as the queue does: by priority, then by arrival."""
    return -trainer.spec.priority, trainer.submitted_at, trainer.id
