"""How many nodes each trainer gives up where the first may cost it more than the next ones. Pure.

A trainer that allows some sizes only, or needs several nodes, loses speed in steps. To take the cheapest node
again and again does not find the least loss then: two nodes of one trainer may cost less than one each of two
others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SAME = 1e-9
"""Speeds that differ by no more than this part of the largest count as the same."""


def is_stepped(worth: Floats) -> bool:
    """Whether a node may cost more than the next one of its trainer, which is worth[n] on n nodes."""
    gains = np.diff(worth)
    return bool((np.diff(gains) > SAME * max(worth.max(), 1e-300)).any())


def shares(steps: Sequence[Floats], rest: Floats, count: int) -> list[int]:
    """How many nodes each trainer gives, so that `count` nodes cost as little as they can together with those
    of the rest.

    `steps` has what 0, 1, ... nodes of each trainer cost, and `rest` what so many of the rest cost.
    """
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    given: list[npt.NDArray[np.intp]] = []
    for costs in steps:
        after, taken = best.copy(), np.zeros(count + 1, dtype=np.intp)
        for k in range(1, min(len(costs) - 1, count) + 1):
            with_k = best[: count + 1 - k] + costs[k]
            better = with_k < after[k:]
            after[k:][better], taken[k:][better] = with_k[better], k
        best = after
        given.append(taken)
    others = np.full(count + 1, np.inf)
    most = min(len(rest) - 1, count)
    others[: most + 1] = rest[: most + 1]
    left = int((best + others[::-1]).argmin())
    found = []
    for taken in reversed(given):
        found.append(int(taken[left]))
        left -= found[-1]
    return found[::-1]
