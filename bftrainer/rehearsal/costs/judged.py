"""Judges what runs have cost, and to what loss they came, by part of the model and by way of training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from bftrainer.elastic.partial.order import role

FIRST = 5
"""Steps that are left out of times: the first are slower, and are trials."""
LAST = 0.1
"""Share of the steps over which the loss is averaged."""
NUMBER_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """A step of one worker. `forward` and `backward` in seconds of the processor; `saved`: bytes that the
    forward pass keeps, None where they were not counted; `computed`: numbers with a gradient."""

    step: int
    rank: int
    workers: int
    samples: int
    total: int
    loss: float
    forward: float
    backward: float
    saved: int | None
    computed: int

    @classmethod
    def of(cls, noted: Iterable[Mapping[str, Any]]) -> list[StepCost]:
        """Those among the events of a record."""
        names = cls.__dataclass_fields__
        return [cls(**{name: each[name] for name in names}) for each in noted if each.get("event") == "cost"]


@dataclass(frozen=True, slots=True)
class PartCost:
    """A part of the model, and what a step costs a worker that computes it: seconds and bytes."""

    name: str
    forward: float
    backward: float
    saved: float
    gradient: float


@dataclass(frozen=True, slots=True)
class WayOutcome:
    """Outcome of a way of training: its steps, its loss, its compute relative to full back-propagation, and
    its share of the bytes exchanged."""

    name: str
    steps: int
    loss: float
    compute: float
    bytes: float


def parts(costs: Sequence[StepCost]) -> list[PartCost]:
    """Costs by part of a run with partial back-propagation: medians over all workers' steps."""
    found = defaultdict[int, list[StepCost]](list)
    for each in costs:
        if each.step > FIRST:
            found[role(each.rank, each.step - 1, each.workers)].append(each)
    return [
        PartCost(
            f"{j}/{mine[0].workers}",
            median(each.forward for each in mine),
            median(each.backward for each in mine),
            median([each.saved for each in mine if each.saved is not None] or [0]),
            median(each.computed for each in mine) * NUMBER_BYTES,
        )
        for j, mine in sorted(found.items())
    ]


def compute(costs: Sequence[StepCost]) -> float:
    """Seconds of the processor that a step takes, of all workers together."""
    by_rank = defaultdict[int, list[float]](list)
    for each in costs:
        if each.step > FIRST:
            by_rank[each.rank].append(each.forward + each.backward)
    return sum(fmean(mine) for mine in by_rank.values())


def loss(costs: Sequence[StepCost], upto: int) -> float:
    """The loss of a run that ends after `upto` steps: the mean over its last ones' samples."""
    since = upto - max(3, round(LAST * upto))
    last = [each for each in costs if since < each.step <= upto]
    return sum(each.loss * each.samples for each in last) / sum(each.samples for each in last)


def fewer_steps(steps: int, share: float) -> int:
    """Number of full steps that take the compute of `steps` partial ones."""
    return max(FIRST + 1, min(steps, round(steps * share)))


def fewer_workers(workers: int, share: float) -> int:
    """Number of workers with full back-propagation that take about the compute of all with parts."""
    return max(1, min(workers - 1, round(workers * share)))
