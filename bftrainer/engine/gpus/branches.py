"""Curves with two branches: GPUs of one node, and of several (`TrainerSpec.across`). Pure.

Counts are planned with the best case: a trainer is on one node wherever that is possible without migration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from bftrainer.allocate.place import counts_of
from bftrainer.model.problem import Candidate
from bftrainer.model.trainer import Points, Trainer
from bftrainer.performance import curve


@dataclass(frozen=True, slots=True)
class GpuRoom:
    """The pool's GPUs by node, and the most of any node."""

    of_node: Mapping[str, int] = field(default_factory=dict)
    most: int = 0

    @classmethod
    def of(cls, pool: frozenset[str]) -> GpuRoom:
        """Return the room of this pool."""
        counted = counts_of(pool)
        return cls(counted, max(counted.values(), default=0))


def with_branches(c: Candidate, trainer: Trainer, room: GpuRoom) -> Candidate:
    """A candidate whose curve is that of one node as far as the trainer may be on one, and that of several
    nodes beyond; the same one if its curve has no branches."""
    if not c.across:
        return c
    alone = room.most
    if trainer.nodes:
        own = counts_of(trainer.nodes)
        alone = max(own.values()) if len(own) > 1 else room.of_node.get(next(iter(own)), 0)
    return replace(c, curve=_joined(c.curve, c.across, alone), alone=alone)


@lru_cache(maxsize=1 << 11)
def _joined(local: Points, across: Points, alone: int) -> Points:
    """Return the curve that follows `local` up to `alone` GPUs, and `across` from the next one on."""
    below = tuple((n, curve.rate(local, n)) for n in range(1, alone + 1))
    above = tuple((n, rate) for n, rate in across if n > alone + 1)
    return (*below, (alone + 1, curve.rate(across, alone + 1)), *above)
