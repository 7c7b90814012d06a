"""Which of our nodes to give up for jobs of the main scheduler that could start on them. Pure.

The price of a node is the speed that its trainer loses without it; nodes that train nothing yet cost nothing.
So the main jobs get all that they need, at once, and trainers lose as little as that allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from bftrainer.model.machine import Claim
from bftrainer.model.trainer import Points, Trainer
from bftrainer.performance import curve


def choose(
    claims: Iterable[Claim],
    held: frozenset[str],
    trainers: Iterable[Trainer],
    curves: Mapping[int, Points],
    releasing: Collection[str] = (),
) -> frozenset[str]:
    """The nodes of `held` to give up: for each claim the cheapest `count` of those that are left.

    A claim for which too few are left gets none, as its job could not start anyway. `curves` has each
    trainer's samples/s by nodes. Nodes of `held` that we are `releasing` already cost nothing more.
    """
    owner = {node: t for t in trainers for node in t.nodes}
    size = {t.id: len(t.nodes) for t in owner.values()}
    given: set[str] = set()

    def worth(t: Trainer, nodes: int) -> float:
        return curve.rate(curves[t.id], nodes) * t.spec.weight if nodes >= t.spec.n_min else 0.0

    def price(node: str) -> tuple[float, bool, str]:
        if node in releasing:
            return -1.0, False, node
        t = owner.get(node)
        if t is None:
            return 0.0, False, node
        return worth(t, size[t.id]) - worth(t, size[t.id] - 1), node in t.members, node

    for claim in claims:
        free = (claim.nodes & held) - given
        if len(free) < claim.count:
            continue
        for _ in range(claim.count):
            node = min(free, key=price)
            free -= {node}
            given.add(node)
            if node in owner:
                size[owner[node].id] -= 1
    return frozenset(given)
