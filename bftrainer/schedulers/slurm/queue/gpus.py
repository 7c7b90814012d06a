"""GPUs by their types, as Slurm's lists of generic resources have them. Pure.

A MIG slice is a GPU of another type. `shard` and `mps` are further names of the same GPUs: of one in use by
such a name Slurm gives no job the whole, and of one in use as a whole no part.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

MOST_GRES = 1024
"""The most characters of a list that are read."""
UNITS = {"": 1, "K": 1024, "M": 1024**2}
ANY = ""
"""The type of GPUs that have none, and of what a job asks for that takes any."""

IN_PARTS = ("shard", "mps")
"""The names by which jobs ask for parts of a GPU."""

Kinds = tuple[tuple[str, int], ...]
"""(type, number), ascending."""
Parts = tuple[tuple[str, str, int], ...]
"""(one of `IN_PARTS`, type, number of parts)."""


@lru_cache(maxsize=4096)
def kinds(gres: str, name: str = "gpu") -> Kinds:
    """gpu:a100:4(S:0-1),gpu:h100:2,nvme:1 -> a100 4, h100 2; also gres/gpu=4 and gres:gpu:a100:2. Likewise
    for another `name`."""
    found: Counter[str] = Counter()
    for kind, count, _ in _entries(gres, name):
        found[kind] += count
    if "=" in gres:  # of TRES gres/gpu counts all, those of gres/gpu:a100 as well
        found[ANY] -= min(found[ANY], sum(found.values()) - found[ANY])
    return tuple(sorted((kind, count) for kind, count in found.items() if count))


def _entries(gres: str, name: str) -> Iterator[tuple[str, int, str]]:
    """The type, the number and what stands in brackets of each entry of this name."""
    for entry, inside in re.findall(r"([^,(]+)(?:\(([^)]*)\))?", gres[:MOST_GRES]):
        first, *words = re.split(r"[:=]", entry.removeprefix("gres/").removeprefix("gres:"))
        if first != name:
            continue
        last = re.fullmatch(r"([0-9]{1,9})([KkMm]?)", words[-1]) if words else None
        kind = words[0] if len(words) > (1 if last else 0) else ANY
        yield kind, int(last[1]) * UNITS[last[2].upper()] if last else 1, inside


@lru_cache(maxsize=4096)
def parts(gres: str) -> Parts:
    """The parts of GPUs that a job asks for: gres:shard:a100:3 -> (shard, a100, 3)."""
    return tuple((name, kind, count) for name in IN_PARTS for kind, count in kinds(gres, name))


@lru_cache(maxsize=4096)
def sizes(gres: str) -> Parts:
    """The parts that one GPU of a node has: gpu:a100:4,shard:a100:16 -> (shard, a100, 4)."""
    have = dict(kinds(gres))
    return tuple(
        (name, kind, max(1, count // max(1, have.get(kind, 0) or total(kinds(gres)))))
        for name, kind, count in parts(gres)
    )


@lru_cache(maxsize=4096)
def opened(used: str, of_one: Parts) -> Parts:
    """The GPUs of which jobs use parts, each with the parts that are left of it. `of_one`: see `sizes`.

    Later versions count the parts of each GPU: shard:3(3/4,0/4). 22.05 names the GPUs: shard:3(IDX:0).
    Of several of these nobody knows which has how many left: they are taken to have as many each.
    """
    found: list[tuple[str, str, int]] = []
    for name in IN_PARTS:
        listed = ((*one, "") for one in kinds(used, name)) if "=" in used else _entries(used, name)
        for kind, count, inside in listed:
            each = [
                (int(taken), int(all_)) for taken, all_ in re.findall(r"([0-9]{1,9})/([0-9]{1,9})", inside)
            ]
            if not each and count:
                size = next((n for own, type_, n in of_one if own == name and like(kind, type_)), count)
                devices = _indices(inside) or -(-count // size)
                left = max(0, devices * size - count)
                more = left % devices
                each = [(0, left // devices + (i < more)) for i in range(devices)]
                found += [(name, kind, all_) for _, all_ in each]
            else:
                found += [(name, kind, all_ - taken) for taken, all_ in each if taken]
    return tuple(found)


def _indices(inside: str) -> int:
    """Return how many GPUs IDX:0-1,3 names."""
    bounds = re.findall(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", inside.partition("IDX:")[2])
    return sum(max(0, int(last or first) - int(first)) + 1 for first, last in bounds)


def like(one: str, other: str) -> bool:
    """Return whether two types may be of one GPU."""
    return ANY in (one, other) or one == other


def after(there: Kinds, open_: Parts, of_one: Parts, asked: Parts) -> tuple[Kinds, Parts] | None:
    """The whole GPUs and the parts that are left once a job has the parts that it asks for; None: it cannot.
    It takes them of the GPU that has least left, or begins a whole one."""
    left = list(open_)
    for name, kind, wanted in asked:
        rest = wanted
        while rest > 0:
            fit = [own for own in left if own[0] == name and like(kind, own[1]) and own[2] >= rest]
            if fit:
                own = min(fit, key=lambda one: one[2])
                left.remove(own)
                left.append((name, own[1], own[2] - rest))
                break
            new = next((own for own in of_one if own[0] == name and like(kind, own[1])), None)
            if new is None or not covers(there, ((new[1], 1),)):
                return None
            there = without(there, ((new[1], 1),))
            left.append((name, new[1], max(0, new[2] - rest)))
            rest -= new[2]
    return there, tuple(left)


def total(found: Kinds) -> int:
    """All of them."""
    return sum(count for _, count in found)


def types(found: Kinds) -> tuple[str, ...]:
    """Their types, as far as they have one."""
    return tuple(kind for kind, _ in found if kind != ANY)


def covers(there: Kinds, wanted: Kinds) -> bool:
    """Return whether GPUs suffice for a job: those of each type that it names, and their total."""
    have = dict(there)
    named = all(have.get(kind, 0) >= count for kind, count in wanted if kind != ANY)
    return named and total(there) >= total(wanted)


def plus(*several: Kinds) -> Kinds:
    """All together."""
    return tuple(sorted(sum((Counter(dict(one)) for one in several), Counter[str]()).items()))


def without(there: Kinds, gone: Kinds) -> Kinds:
    """The GPUs that are left; those of `gone` that have no type are taken of the most frequent one."""
    left = Counter(dict(there))
    for kind, count in sorted(gone, key=lambda one: one[0] == ANY):
        named = min(count, left[kind])
        left[kind] -= named
        rest = count - named
        for other, have in left.most_common():
            left[other] = have - min(rest, have)
            rest -= min(rest, have)
    return tuple(sorted((kind, count) for kind, count in left.items() if count))


def option(found: Kinds) -> str:
    """Return the value of sbatch's --gres for these; "" for none."""
    return ",".join(f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in found if count)
