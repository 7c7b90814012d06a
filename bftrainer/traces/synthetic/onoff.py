"""A generated log of idle nodes, without end: what `bftrainer daemon` plays if no real log is given.

Every node alternates between idle and busy for exponentially distributed times, on its own, from a
seed: the same arguments give the same log.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator

from bftrainer.model.events import NodesChanged


def names(nodes: int) -> frozenset[str]:
    """The names of this many nodes: n01, n02, ..."""
    width = max(2, len(str(nodes)))
    return frozenset(f"n{number:0{width}}" for number in range(1, nodes + 1))


def changes(
    nodes: int, *, seed: int = 0, idle_s: float = 25.0, busy_s: float = 12.0
) -> Iterator[NodesChanged]:
    """Changes of the pool from time 0 on, without end. `idle_s` and `busy_s` are mean lengths (s).

    The first node begins idle, so that a demonstration shows something at once; the others begin in
    either state at random.
    """
    streams = [_one(node, seed, idle_s, busy_s, first=i == 0) for i, node in enumerate(sorted(names(nodes)))]
    for time, node, idle in heapq.merge(*streams):
        one = frozenset({node})
        if idle:
            yield NodesChanged(time=time, joined=one, reason="log")
        elif time > 0:
            yield NodesChanged(time=time, left=one, reason="log")


def _one(
    node: str, seed: int, idle_s: float, busy_s: float, *, first: bool
) -> Iterator[tuple[float, str, bool]]:
    rng = random.Random(f"{seed}/{node}")  # noqa: S311  not for secrets
    idle = first or rng.random() < idle_s / (idle_s + busy_s)
    time = 0.0
    while True:
        yield time, node, idle
        time += max(1.0, rng.expovariate(1 / (idle_s if idle else busy_s)))
        idle = not idle
