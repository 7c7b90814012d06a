"""Counts -> nodes, without migration: a trainer only gains or only loses nodes (eq. 6).

A trainer that shrinks keeps the nodes on which its members train, and gives up the last ones in name order. A
trainer that grows takes neighbours in name order: nodes with neighbouring names tend to leave together, and
a departure that hits one trainer interrupts only that one.
"""

from __future__ import annotations

from collections.abc import Mapping

from bftrainer.model.problem import Allocation


def assign(
    counts: Mapping[int, int],
    current: Allocation,
    pool: frozenset[str],
    members: Mapping[int, frozenset[str]] | None = None,
) -> dict[int, frozenset[str]]:
    """The nodes of `pool` for these counts.

    `current` has nodes of the pool only. Trainers that are not in `counts` get nothing. `members` are the
    nodes on which each trainer trains now.

    Raises:
        ValueError: the counts ask for more nodes than the pool has.
    """
    if sum(counts.values()) > len(pool):
        raise ValueError(f"{sum(counts.values())} nodes asked of a pool of {len(pool)}")
    members = members or {}
    target: dict[int, frozenset[str]] = {}
    growing: list[int] = []
    for trainer, n in counts.items():
        held = current.get(trainer, frozenset())
        if n < len(held):
            training = members.get(trainer, frozenset())
            ranked = sorted(held, key=lambda node: (node not in training, node))
            target[trainer] = frozenset(ranked[:n])
        else:
            target[trainer] = held
            if n > len(held):
                growing.append(trainer)
    if growing:
        free = sorted(pool.difference(*target.values()))
        start = 0
        for trainer in sorted(growing, key=lambda t: (len(target[t]) - counts[t], t)):
            need = counts[trainer] - len(target[trainer])
            target[trainer] |= frozenset(free[start : start + need])
            start += need
    return target
