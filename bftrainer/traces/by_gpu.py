"""Idle nodes as idle GPUs, and the other way round: a node is idle while all of its GPUs are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from bftrainer.model.gpus import gpus_of, node_of
from bftrainer.model.machine import Slot
from bftrainer.traces.intervals import Interval


def names_of(share: str, names: Collection[str], gpus_per_node: int) -> frozenset[str]:
    """The names of nodes, or of GPUs, where the log names either."""
    if share == "node":
        return frozenset(map(node_of, names))
    return frozenset(gpu for name in names for gpu in _gpus(name, gpus_per_node))


def intervals_of(
    share: str, intervals: Iterable[Interval], names: Collection[str], gpus_per_node: int
) -> Iterator[Interval]:
    """The intervals of nodes, or of GPUs (`share`), of a log that names either."""
    if share == "gpu":
        for interval in intervals:
            for gpu in _gpus(interval.node, gpus_per_node):
                yield interval._replace(node=gpu)
    elif any(Slot.of(name).gpu is not None for name in names):
        yield from _all_idle(intervals, Counter(map(node_of, names)))
    else:
        yield from intervals


def _gpus(name: str, count: int) -> tuple[str, ...]:
    return gpus_of(name, count) if Slot.of(name).gpu is None else (name,)


def _all_idle(intervals: Iterable[Interval], gpus: Counter[str]) -> Iterator[Interval]:
    """Intervals in which all GPUs of a node are idle; `gpus`: GPUs of each node."""
    changes: dict[str, list[tuple[float, int]]] = {}
    for start, end, gpu in intervals:
        changes.setdefault(node_of(gpu), []).extend(((start, 1), (end, -1)))
    for node, own in changes.items():
        idle, since = 0, 0.0
        for moment, change in sorted(own):  # at one moment GPUs are taken before others get free
            if idle == gpus[node] and change < 0 and moment > since:
                yield Interval(since, moment, node)
            idle, since = idle + change, moment
