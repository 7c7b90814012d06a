"""Parts of nodes: the free GPUs of nodes that main jobs share, with cores and memory in proportion. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import reduce

from bftrainer.schedulers.slurm.queue.gpus import total
from bftrainer.schedulers.slurm.queue.resources import Remaining, left_of, together
from bftrainer.schedulers.slurm.rows import NodeRow, SlurmJobRow

USED_UP = "main jobs are about to use its free GPUs"


def part_of(row: NodeRow, left: Remaining) -> Remaining | None:
    """Return what a pilot takes of what is `left` of a node; None: there is nothing for it.

    All free GPUs of one type, the one with the most. Of cores and memory it takes what is in proportion, or
    what is left of that; a GPU without a core, or with less than half its proportion of memory, stays free.
    """
    kind, free = max(left.gpus, key=lambda one: one[1], default=("", 0))
    if not free:
        return None
    cores, memory_mb = max(1, row.cpus // total(row.gpus)), row.memory_mb // total(row.gpus)
    count = min(free, left.cpus, left.memory_mb // max(1, memory_mb // 2))
    if count < 1:
        return None
    memory = min(left.memory_mb, count * memory_mb)
    return Remaining(min(left.cpus, count * cores), memory, ((kind, count),))


def used_by_main_jobs(row: NodeRow, own: Iterable[Remaining]) -> float:
    """The share of a node's cores or GPUs, whichever is larger, that is neither free nor among the parts that
    our pilots `own`."""
    left = reduce(together, own, left_of(row))
    free = [left.cpus / row.cpus] if row.cpus else []
    free += [total(left.gpus) / total(row.gpus)] if row.gpus else []
    return max(0.0, 1.0 - min(free, default=1.0))


def spare_parts(
    nodes: Mapping[str, NodeRow], without: Collection[str], pilots: Iterable[SlurmJobRow]
) -> dict[str, Remaining]:
    """Node -> what a pilot could take there now, of nodes that main jobs use in part.

    A node where there is no room for one of our `pilots` that waits is left out, as if main jobs used all of
    it. So the pilot goes, and another may ask for what is left.
    """
    found = {
        name: part_of(row, left_of(row))
        for name, row in nodes.items()
        if row.base == "MIXED" and name not in without
    }
    parts = {name: part for name, part in found.items() if part is not None}
    waiting = {job.required: job for job in pilots if job.state == "PENDING"}
    return {name: part for name, part in parts.items() if name not in waiting or part.fits(waiting[name])}


def after_main_jobs(
    spare: Mapping[str, Remaining], nodes: Mapping[str, NodeRow], left: Mapping[str, Remaining]
) -> dict[str, Remaining]:
    """Return what pilots take of spare parts once waiting main jobs have had theirs, which leaves `left`."""
    found = {name: part_of(nodes[name], left.get(name, left_of(nodes[name]))) for name in spare}
    return {name: part for name, part in found.items() if part is not None}
