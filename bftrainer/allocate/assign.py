"""Counts -> nodes, without migration: a trainer only gains or only loses nodes (eq. 6).

A trainer that shrinks keeps the nodes on which its members train, and gives up the last ones in name order. A
trainer that grows takes neighbours in name order: nodes with neighbouring names tend to leave together, and
a departure that hits one trainer interrupts only that one.

Where trainers may not use every node, those with fewer to choose from choose first, and nodes that others
may not use go to those that may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice

from bftrainer.model.problem import Allocation

NONE: frozenset[str] = frozenset()


def assign(
    counts: Mapping[int, int],
    current: Allocation,
    pool: frozenset[str],
    members: Mapping[int, frozenset[str]] | None = None,
    barred: Allocation | None = None,
) -> dict[int, frozenset[str]]:
    """The nodes of `pool` for these counts.

    `current` has nodes of the pool only. Trainers that are not in `counts` get nothing. `members` are the
    nodes on which each trainer trains now, `barred` those that each may not have unless it has them. A
    trainer gets fewer nodes than its count if it may not have those that are left.

    Raises:
        ValueError: the counts ask for more nodes than the pool has.
    """
    if sum(counts.values()) > len(pool):
        raise ValueError(f"{sum(counts.values())} nodes asked of a pool of {len(pool)}")
    members, barred = members or {}, barred or {}
    target: dict[int, frozenset[str]] = {}
    growing = [t for t, n in counts.items() if n > len(current.get(t, NONE))]
    shunned = Counter(node for t in growing for node in barred.get(t, NONE))
    for trainer, n in counts.items():
        held, training = current.get(trainer, NONE), members.get(trainer, NONE)
        if n < len(held):
            ranked = sorted(held, key=lambda node: (node not in training, -shunned[node], node))
            held = frozenset(ranked[:n])
        target[trainer] = held
    free = sorted(pool.difference(*target.values()), key=lambda node: (-shunned[node], node))
    for trainer in sorted(growing, key=lambda t: (-len(barred.get(t, NONE)), len(target[t]) - counts[t], t)):
        need, kept_off = counts[trainer] - len(target[trainer]), barred.get(trainer, NONE)
        taken = frozenset(islice((node for node in free if node not in kept_off), need))
        target[trainer] |= taken
        free = [node for node in free if node not in taken]
    return target
