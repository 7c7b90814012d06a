"""A cheap comparison of the nodes' states, now and then: before a training is in vain, it is found out."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from bftrainer.elastic.loop.observers import ReplicasDiffer, StepObserver
from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state.leaves import Leaf, Sample, leaves_of, sample
from bftrainer.elastic.state.packing import from_bytes, to_bytes
from bftrainer.elastic.state.training_state import TrainingState
from bftrainer.messages.state import REPLICAS_DIFFER, ROUNDING

log = logging.getLogger(__name__)

AFTER_CHANGE = (2, 10, 30)
"""Steps after other ranks began to share the samples at which states are compared as well: faults of nodes
that join show soon, and these may have left again by the next time."""
MOST_OTHERS = 16
"""Optimisers outside of the run to check, at most."""
OUTSIDE = " outside of the run"


@dataclass(frozen=True, slots=True)
class Difference:
    """The entry in which a rank differs most from the first, its values there and here, and how many do."""

    name: str
    theirs: float
    mine: float
    count: int


@dataclass(slots=True)
class _Other:
    """An optimiser that steps parameters, and is not the run's. One that `lasts` has stepped in several steps
    of the run; others, such as those of an inner loop, may well differ between nodes."""

    optimizer: weakref.ref[torch.optim.Optimizer]
    first: int
    lasts: bool = False


class Comparison(StepObserver):
    """Compares the states of the ranks that share the samples every `every` steps, soon after others began
    to, and when the run is over; 0: never.

    Entries whose names are like one of `may_differ` are left out.
    """

    _state: TrainingState

    def __init__(self, every: int, may_differ: Sequence[str] = ()) -> None:
        self._every, self._may_differ = every, tuple(may_differ)
        self._others: list[_Other] = []
        self._changed_at = 0
        self._told = False

    def enters(self, state: TrainingState) -> None:
        """Find, from now on, optimisers that the run does not have, as they step."""
        self._state = state
        own = {id(part) for part in state.parts.values()}

        def seen(optimizer: torch.optim.Optimizer, *_: object) -> None:
            if id(optimizer) not in own:
                self._stepped_outside(optimizer)

        register_optimizer_step_post_hook(seen)

    def members_changed(self, size: int) -> None:
        self._changed_at = self._state.position.step

    def digest(self, *, is_over: bool) -> int | None:
        step = self._state.position.step
        is_due = is_over or step - self._changed_at in AFTER_CHANGE or step % (self._every or 1) == 0
        return self._sample().digest() if self._every and is_due else None

    def differs(self, group: Group, working: Sequence[int]) -> None:
        """The digests differ: find out in what. All ranks of the group take part.

        Raises:
            ReplicasDiffer: on all ranks, if it is more than rounding.
            GroupBroken: a member was lost meanwhile.
        """
        mine, first = self._sample(), working[0]
        theirs = _broadcast(group, mine, first)
        found = difference(theirs, mine) if group.rank in working else None
        rows = torch.zeros(group.size, 4, dtype=torch.float64)
        if found is not None:
            index = float(theirs.names.index(found.name) if found.name in theirs.names else -1)
            rows[group.rank] = torch.tensor([found.count, index, found.theirs, found.mine], dtype=rows.dtype)
        group.all_reduce(rows)
        for rank, (count, index, there, here) in enumerate(rows.tolist()):
            if count:
                name = theirs.names[int(index)] if index >= 0 else "an entry that rank 0 does not have"
                more = f", and {int(count) - 1} more entries differ" if count > 1 else ""
                raise ReplicasDiffer(
                    REPLICAS_DIFFER.say(
                        step=self._state.position.step,
                        name=name,
                        theirs=there,
                        first=working.index(first),
                        mine=here,
                        rank=rank,
                        more=more,
                    )
                )
        if not self._told:
            self._told = True
            log.warning("%s", ROUNDING.say())

    def _sample(self) -> Sample:
        found = [*leaves_of(self._state.parts), *self._outside()]
        return sample(leaf for leaf in found if not self._is_free(leaf.name))

    def _stepped_outside(self, optimizer: torch.optim.Optimizer) -> None:
        step = self._state.position.step
        self._others = [each for each in self._others if each.optimizer() is not None]
        for each in self._others:
            if each.optimizer() is optimizer:
                each.lasts |= step != each.first
                return
        if len(self._others) < MOST_OTHERS:
            self._others.append(_Other(weakref.ref(optimizer), step))

    def _outside(self) -> list[Leaf]:
        lasting = [found for each in self._others if each.lasts and (found := each.optimizer()) is not None]
        return [
            Leaf(f"parameter {number} of {type(optimizer).__name__} no. {which + 1}{OUTSIDE}", p)
            for which, optimizer in enumerate(lasting)
            for number, p in enumerate(p for group in optimizer.param_groups for p in group["params"])
        ]

    def _is_free(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._may_differ)


def difference(theirs: Sample, mine: Sample) -> Difference | None:
    """Difference of two samples beyond rounding; None if there is none."""
    there = {name: values for name, values, _ in theirs.entries()}
    found: list[tuple[float, str, float, float]] = []
    for name, here, allowed in mine.entries():
        other = there.pop(name, None)
        if other is None and OUTSIDE in name:
            continue  # it has not stepped on that rank yet
        if other is None or other.shape != here.shape:
            found.append((float("inf"), name, float("nan"), float("nan")))
            continue
        size = max(float(other.abs().nan_to_num().max()), float(here.abs().nan_to_num().max()))
        apart = (other - here).abs()
        apart[(other == here) | (other.isnan() & here.isnan())] = 0.0
        worst = int(apart.nan_to_num(float("inf")).argmax())
        if not float(apart[worst]) <= allowed * size:
            found.append((float(apart[worst]) / (size or 1.0), name, float(other[worst]), float(here[worst])))
    found += [(float("inf"), name, float("nan"), float("nan")) for name in there if OUTSIDE not in name]
    if not found:
        return None
    numbers = [one for one in found if one[1].startswith(("optimizer", "scheduler")) and " of " not in one[1]]
    _, name, other_value, value = max(numbers or found, key=lambda one: one[0])
    return Difference(name, other_value, value, len(found))


def _broadcast(group: Group, mine: Sample, source: int) -> Sample:
    """The sample of rank `source`, on all ranks."""
    blob = to_bytes([[*mine.names], [*mine.sizes], [*mine.allowed], mine.values])
    size = torch.tensor([len(blob)])
    group.broadcast(size, source)
    data = blob if group.rank == source else torch.empty(int(size), dtype=torch.uint8)
    group.broadcast(data, source)
    names, sizes, allowed, values = from_bytes(data)
    return Sample(tuple(names), tuple(sizes), tuple(allowed), values)
