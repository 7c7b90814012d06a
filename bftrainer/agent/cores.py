"""Divides a node's cores among its workers. Pure, but for what `near` reads."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

Cores = tuple[int, ...]


def shares(cores: Collection[int], count: int, near: Sequence[Collection[int]] = ()) -> list[Cores]:
    """Share cores out to `count` workers: those next to its device to each, where that is known, and an even
    part of the rest.

    Args:
        cores: that all of them together may use.
        near: for each worker the cores next to its device; one that is empty is not known.

    Returns:
        Parts without overlap that leave out no core; all cores for each where there are fewer than workers.
    """
    mine = sorted(cores)
    if len(mine) < count:
        return [tuple(mine)] * count
    parts: list[list[int]] = [[] for _ in range(count)]
    groups: dict[frozenset[int], list[int]] = {}
    for worker in range(count):
        own = frozenset(near[worker]) & set(mine) if worker < len(near) else frozenset()
        groups.setdefault(own, []).append(worker)
    if _can_be_kept(groups):
        for own, workers in groups.items():
            for worker, part in zip(workers, _cut(sorted(own), len(workers)), strict=True):
                parts[worker] += part
    rest = sorted(set(mine) - {core for part in parts for core in part})
    return [tuple(sorted([*part, *more])) for part, more in zip(parts, _cut(rest, count), strict=True)]


def _can_be_kept(groups: dict[frozenset[int], list[int]]) -> bool:
    """True if each device's cores suffice for its workers, and no two devices share only some."""
    apart = sum(len(own) for own in groups) == len(frozenset().union(*groups))
    return apart and all(len(own) >= len(workers) for own, workers in groups.items())


def _cut(cores: list[int], count: int) -> list[list[int]]:
    """Pieces of neighbours, none more than one core larger than another."""
    at = [len(cores) * i // count for i in range(count + 1)]
    return [cores[a:b] for a, b in pairwise(at)]


def threads(share: int, count: int, of_node: str) -> int:
    """For how many threads a worker's share of cores is; `of_node`: OMP_NUM_THREADS of the whole node, if it
    is set."""
    most = max(1, int(of_node) // count) if of_node.isdecimal() and int(of_node) else share
    return max(1, min(share, most))


def near(hardware: str, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> frozenset[int]:
    """The cores next to an NVIDIA device, by its number on the node or its UUID; empty where the machine does
    not say."""
    for told in sorted(proc.glob("driver/nvidia/gpus/*/information")):
        with contextlib.suppress(OSError, ValueError):
            fields = dict(line.partition(":")[::2] for line in told.read_text().splitlines())
            if hardware and hardware in {
                fields.get(name, "").strip() for name in ("Device Minor", "GPU UUID")
            }:
                return listed((sys / "bus/pci/devices" / told.parent.name / "local_cpulist").read_text())
    return frozenset()


def listed(text: str) -> frozenset[int]:
    """The numbers of a list as the kernel writes it, such as 0-3,8-11.

    Raises:
        ValueError: the text is invalid.
    """
    found: set[int] = set()
    for word in text.strip().split(",") if text.strip() else []:
        first, _, last = word.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
