"""A figure over a data set, computed by all members together: each evaluates a part of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.utils.data import DataLoader

from bftrainer.elastic.loop.assembly import RunParts
from bftrainer.elastic.loop.steps import StepTaker
from bftrainer.elastic.members.group import Group, GroupBroken
from bftrainer.elastic.train.source import Source

Measure = Callable[[Any], Mapping[str, float]]
Sums = dict[str, float]
"""Name -> the sum over samples; "" -> their number."""


class RunEvaluation:
    """A script's evaluation between two steps: a part of `elastic.Run`."""

    _parts: RunParts
    _steps: StepTaker
    _pauses = 0  # under way, one within the other

    @contextlib.contextmanager
    def pause(self, most_s: float = 3600.0) -> Iterator[None]:
        """Have the others wait for what takes one node long, such as an evaluation by rank 0 alone.

        They wait for `most_s` seconds at most. The time counts neither as slow training nor as the cost of
        a rescale.
        """
        self._pauses += 1
        if self._pauses == 1:
            self._parts.peers.busy(most_s)
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._parts.peers.busy(0.0)

    def evaluate(
        self,
        data: Any,
        measure: Measure,
        *,
        batch_size: int | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        most_s: float = 3600.0,
    ) -> dict[str, float]:
        """The means over a data set of the figures that `measure(batch)` returns for each batch. Every node
        evaluates a part of it, and all get the same result.

        To be called on all nodes after the same step: in the loop's body after `step`, or in a function given
        to `after_step` or `after_epoch`. Before and after the loop, each node evaluates all by itself. Models
        are in evaluation mode meanwhile, and gradients are off.

        Args:
            data: as for the run; a DataLoader's batch size and collation are taken over.
            measure: figures by name, each the mean over the batch's samples. Batches are the same on any
                number of nodes.
            batch_size: most samples at once; the run's own by default.
            collate: as for the run.
            most_s: longer, and the node is taken for hung.

        Raises:
            ValueError, TypeError: data that cannot be shared out.
        """
        own = isinstance(data, DataLoader)
        source = Source(
            data, None if own else batch_size or self._parts.batches.batch_size, collate, self._parts.seed
        )
        with self.pause(most_s), evaluating(list(self._parts.trained.models.values())):
            return evaluated(source, measure, self._parts.peers.group, self._steps.evaluating_ranks(), most_s)


def evaluated(
    source: Source, measure: Measure, group: Group, ranks: Sequence[int], within_s: float
) -> dict[str, float]:
    """The means of what `measure` returns for each batch, weighed by the batches' samples.

    The group's `ranks` share the data, and all get the same result. A rank that is none of them computes all
    of it by itself, and so does every rank if one is lost meanwhile: the parts and their order are the same.
    """
    if group.rank not in ranks:
        ranks = [group.rank]
    parts = _cut(source.length, len(ranks), source.batch_size)
    mine = _sums(source, measure, parts[ranks.index(group.rank)])
    try:
        total = _exchanged(mine, group, ranks, within_s)
    except GroupBroken:  # the loop will see it
        total = _added(
            [
                mine if rank == group.rank else _sums(source, measure, part)
                for rank, part in zip(ranks, parts, strict=True)
            ]
        )
    count = total.pop("")
    return {name: value / count for name, value in total.items()}


@contextlib.contextmanager
def evaluating(models: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Within, models are in evaluation mode and gradients are off; then modules are as they were."""
    were = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in were:
            module.training = training


def _sums(source: Source, measure: Measure, part: range) -> Sums:
    found: Sums = {"": 0.0}
    for start in part[:: source.batch_size]:
        indices = list(range(start, min(start + source.batch_size, part.stop)))
        figures = measure(source.fetch(indices))
        found[""] += len(indices)
        for name, value in figures.items():
            found[name] = found.get(name, 0.0) + float(value) * len(indices)
    return found


def _exchanged(mine: Sums, group: Group, ranks: Sequence[int], within_s: float) -> Sums:
    """The sums of all parts: the first rank gathers them, and hands the result out."""
    head, others = ranks[0], ranks[1:]
    if group.rank != head:
        _send(group, mine, head, within_s)
        return _receive(group, head, within_s)
    total = _added([mine, *(_receive(group, rank, within_s) for rank in others)])
    for rank in others:
        _send(group, total, rank, within_s)
    return total


def _send(group: Group, sums: Sums, rank: int, within_s: float) -> None:
    data = torch.frombuffer(bytearray(json.dumps(sums).encode()), dtype=torch.uint8)
    group.send(torch.tensor([len(data)]), rank, within_s)
    group.send(data, rank, within_s)


def _receive(group: Group, rank: int, within_s: float) -> Sums:
    size = torch.zeros(1, dtype=torch.int64)
    group.receive(size, rank, within_s)
    data = torch.empty(int(size), dtype=torch.uint8)
    group.receive(data, rank, within_s)
    found: Sums = json.loads(bytes(data.tolist()))
    return found


def _added(parts: Sequence[Sums]) -> Sums:
    names = {name: None for part in parts for name in part}
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def _cut(length: int, parts: int, batch: int) -> list[range]:
    """The data set in contiguous parts of whole batches: they are the same on any number of nodes, and so is
    the mean of a figure that is no mean over samples, such as F1 or a root of a mean square."""
    count = -(-length // batch)
    ends = [min(i * count // parts * batch, length) for i in range(parts + 1)]
    return [range(start, end) for start, end in pairwise(ends)]
