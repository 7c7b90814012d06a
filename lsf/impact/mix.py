"""Main jobs of LSF: whole hosts, as on Summit, and slots of hosts that jobs share."""

from __future__ import annotations

import random
from collections.abc import Mapping

from benchmarks.testbeds.mix import Kind, Mix, Shape

SLOTS = 42
"""Slots of every host."""


def _nodes(rng: random.Random, nodes: int, size: int) -> Shape:
    return Shape(components=(("-nnodes", str(size)),), size=size, nodes=size)


def _slots(rng: random.Random, nodes: int, size: int) -> Shape:
    slots = rng.randint(1, SLOTS)
    return Shape(components=(("-n", str(slots), "-R", "span[hosts=1]"),), size=slots / SLOTS)


def _several(rng: random.Random, nodes: int, size: int) -> Shape:
    count, each = min(nodes, max(2, size)), rng.randint(1, SLOTS)
    components = (("-n", str(count * each), "-R", f"span[ptile={each}]"),)
    return Shape(components=components, size=count * each / SLOTS, nodes=count)


def _exclusive(rng: random.Random, nodes: int, size: int) -> Shape:
    return Shape(components=(("-n", "1", "-x"),), size=1)


def _anywhere(rng: random.Random, nodes: int, size: int) -> Shape:
    slots = rng.randint(2, SLOTS)
    return Shape(components=(("-n", str(slots)),), size=slots / SLOTS)


KINDS: Mapping[str, Kind] = {
    "nodes": _nodes,
    "slots": _slots,
    "several": _several,
    "exclusive": _exclusive,
    "anywhere": _anywhere,
}
MIXES: Mapping[str, Mix] = {
    "nodes": Mix({"nodes": 1}),
    "slots": Mix({"slots": 0.45, "several": 0.15, "exclusive": 0.1, "anywhere": 0.2, "nodes": 0.1}),
}
