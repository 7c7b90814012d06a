"""Single GPUs of nodes (`share: gpu`): which may be ours, and what the pilot of each gets. Pure.

Slurm says how many GPUs of each type a node has, and how many of them are in use. The GPUs `n1:0`, `n1:1`,
... have a type each, in its order. Our pilot keeps its own; of the others the free ones may be ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from bftrainer.model.gpus import gpus_of
from bftrainer.schedulers.slurm.queue.gpus import option, total
from bftrainer.schedulers.slurm.queue.parts import USED_UP
from bftrainer.schedulers.slurm.queue.resources import Remaining, left_of, less
from bftrainer.schedulers.slurm.rows import NodeRow, SlurmJobRow

NO_GPUS = "it has no GPUs, and single ones are shared out (share: gpu)"
IN_USE = "in use"
CLEARING = "completing"


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """One GPU. `why` it is not ours; if it is, `part` is what its pilot has of the node, or may have."""

    name: str
    gres: str
    cpus: int
    why: str
    part: Remaining | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlaces:
    """GPUs of a node by their use: `free` for pilots, those of our pilots that run (`held`) and that wait,
    and the GPUs whose last pilot is being `cleared` away. `why` nothing there is ours, or (`shut`) no more of
    it may be."""

    free: Remaining
    held: Mapping[str, Remaining]
    waiting: Mapping[str, SlurmJobRow]
    cleared: Collection[str]
    why: str
    shut: str


def places(row: NodeRow, here: GpuPlaces) -> list[GpuPlace]:
    """All GPUs of a node."""
    types = [kind for kind, count in row.gpus for _ in range(count)]
    names = gpus_of(row.name, len(types))
    vacant = [
        (name, kind)
        for name, kind in zip(names, types, strict=True)
        if name not in here.held and name not in here.cleared
    ]
    offered = {} if here.why or here.shut else dict(_offered(row, here, vacant))
    unused = Counter(dict(left_of(row).gpus)) - Counter(kind for name, kind in vacant if name in offered)
    found = []
    for name, kind in zip(names, types, strict=True):
        part = None if here.why else here.held.get(name, offered.get(name))
        why = here.why
        if not why and part is None:
            why = CLEARING if name in here.cleared else here.shut or (USED_UP if unused[kind] else IN_USE)
            unused -= Counter([kind])
        found.append(GpuPlace(name, option(((kind, 1),)), max(1, row.cpus // len(names)), why, part))
    return found


def _offered(
    row: NodeRow, here: GpuPlaces, vacant: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, Remaining]]:
    """The vacant GPUs that pilots may have: those for which one waits, as long as it finds room, and further
    ones with whole cores and memory in proportion, or an even part of what is left of these. A GPU without a
    core, or with less than half its proportion of memory, stays free."""
    vacant, free = list(vacant), here.free
    for name, _ in vacant:
        waits = here.waiting.get(name)
        if waits is not None and free.fits(waits):
            free = less(free, waits, max(1, waits.cpus))
            yield name, Remaining(max(1, waits.cpus), waits.memory_mb, waits.gpus)
    count = total(row.gpus)
    cores, memory_mb = _whole(row.cpus, count, row.threads), row.memory_mb // count
    most = min(free.cpus // row.threads, free.memory_mb // max(1, memory_mb // 2))
    unused = dict(free.gpus)
    chosen: list[tuple[str, str]] = []
    for name, kind in vacant:
        if name not in here.waiting and unused.get(kind, 0) > 0 and len(chosen) < most:
            unused[kind] -= 1
            chosen.append((name, kind))
    for name, kind in chosen:
        share = (
            min(cores, _whole(free.cpus, len(chosen), row.threads)),
            min(memory_mb, free.memory_mb // len(chosen)),
        )
        yield name, Remaining(*share, ((kind, 1),))


def _whole(cpus: int, count: int, threads: int) -> int:
    """Return the CPUs of the whole cores that each of `count` pilots gets, one core at least: Slurm would
    round an odd number up, and the last pilot would find too few."""
    return max(threads, cpus // count // threads * threads)
