"""Counts -> nodes, without migration: a trainer only gains or only loses nodes (eq. 6).

Who shrinks keeps the nodes where its members already are, and gives the last in name order; who
grows takes neighbours in name order: nodes with neighbouring names tend to leave together, and a
departure that hits one trainer interrupts one trainer.
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
    """Turn `counts` into nodes of `pool`.

    `current` holds nodes of the pool only; trainers that are missing in `counts` end with nothing.

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
