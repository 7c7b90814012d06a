"""GPUs by their types, as Slurm's lists of generic resources have them. Pure.

MIG slices and shards are resources of their own: a slice is a GPU of another type, `gres/shard` is none.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

MOST_GRES = 1024
"""The most characters of a list that are read."""
ANY = ""
"""The type of GPUs that have none, and of what a job asks for that takes any."""

Kinds = tuple[tuple[str, int], ...]
"""(type, number), ascending."""


@lru_cache(maxsize=4096)
def kinds(gres: str) -> Kinds:
    """gpu:a100:4(S:0-1),gpu:h100:2,nvme:1 -> a100 4, h100 2; also gres/gpu=4 and gres:gpu:a100:2."""
    found: Counter[str] = Counter()
    for entry in re.sub(r"\([^)]*\)", "", gres[:MOST_GRES]).split(","):
        first, *words = re.split(r"[:=]", entry.removeprefix("gres/").removeprefix("gres:"))
        if first != "gpu":
            continue
        last = re.fullmatch(r"([0-9]{1,9})([Kk]?)", words[-1]) if words else None
        kind = words[0] if len(words) > (1 if last else 0) else ANY
        found[kind] += int(last[1]) * (1024 if last[2] else 1) if last else 1
    if "=" in gres:  # of TRES gres/gpu counts all, those of gres/gpu:a100 as well
        found[ANY] -= min(found[ANY], sum(found.values()) - found[ANY])
    return tuple(sorted((kind, count) for kind, count in found.items() if count))


def total(found: Kinds) -> int:
    """All of them."""
    return sum(count for _, count in found)


def types(found: Kinds) -> tuple[str, ...]:
    """Their types, as far as they have one."""
    return tuple(kind for kind, _ in found if kind != ANY)


def covers(there: Kinds, wanted: Kinds) -> bool:
    """Whether GPUs are enough for a job: those of each type that it names, and so many in all."""
    have = dict(there)
    named = all(have.get(kind, 0) >= count for kind, count in wanted if kind != ANY)
    return named and total(there) >= total(wanted)


def plus(one: Kinds, other: Kinds) -> Kinds:
    """Both together."""
    return tuple(sorted((Counter(dict(one)) + Counter(dict(other))).items()))


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
    """What sbatch's --gres asks for to get these; "" for none."""
    return ",".join(f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in found if count)
