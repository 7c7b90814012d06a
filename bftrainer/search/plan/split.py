"""Divides nodes between experiments beside each other: the numbers that are tried, and the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from bftrainer.search.plan.baselines import rounded
from bftrainer.search.plan.model.profile import ExperimentProfile

SHARES = 16
"""Bounds on the nodes of one experiment that are tried, about, where all together want too many."""

Item = TypeVar("Item")


def bounds(profile: ExperimentProfile) -> list[int]:
    """Numbers of nodes to try, on which a trial fits: all, or ever farther apart."""
    most, least = profile.nodes, -(-profile.least // profile.node_workers)
    if most <= SHARES:
        return list(range(least, most + 1))
    return [n for n in sorted({round(most ** (i / (SHARES - 1))) for i in range(SHARES)}) if n >= least]


def shared_out(
    options: Sequence[Sequence[tuple[int, float, float, Item]]],
    most: int,
    join: Callable[[float, float], float],
) -> list[Item] | None:
    """The best choice of one option (nodes, value, seconds, item) for each experiment, on `most` nodes.

    Its values, joined, are the least; of equal choices it is the one that ends first. None if none fits.
    Dynamic programming over experiments and nodes left.
    """
    best: dict[int, tuple[float, float, list[Item]]] = {0: (0.0, 0.0, [])}  # nodes -> that of those with them
    for own in options:
        found: dict[int, tuple[float, float, list[Item]]] = {}
        for used, (value, seconds, items) in best.items():
            for nodes, more, longer, item in own:
                total = rounded(join(value, more)), max(seconds, longer)
                if used + nodes <= most and total < found.get(used + nodes, (math.inf, math.inf))[:2]:
                    found[used + nodes] = *total, [*items, item]
        best = found
    return min(best.values(), key=lambda own: own[:2])[2] if best else None
