"""A figure over a data set, computed by all members together: each evaluates a part of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from bftrainer.elastic.members.group import Group, GroupBroken
from bftrainer.elastic.train.data import Source

Measure = Callable[[Any], Mapping[str, float]]
Sums = dict[str, float]
"""Name -> the sum over samples; "" -> their number."""


def evaluated(
    source: Source, measure: Measure, group: Group, ranks: Sequence[int], within_s: float
) -> dict[str, float]:
    """The means of what `measure` returns for each batch, weighed by the batches' samples.

    The group's `ranks` share the data, and all get the same result. A rank that is none of them computes all
    of it by itself, and so does every rank if one is lost meanwhile: the parts and their order are the same.
    """
    if group.rank not in ranks:
        ranks = [group.rank]
    parts = _cut(source.length, len(ranks))
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


def _cut(length: int, parts: int) -> list[range]:
    """The data set in contiguous parts."""
    return [range(i * length // parts, (i + 1) * length // parts) for i in range(parts)]
