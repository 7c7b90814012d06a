"""Which of our nodes to give up for jobs of the main scheduler that could start on them. Pure.

The price of a node is the speed that its trainer loses without it; nodes that train nothing yet cost nothing.
So the main jobs get all that they need, at once, and trainers lose as little as that allows.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby, islice

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
    market = _Market(held, trainers, curves, releasing)
    left = set(held)
    # many jobs often ask for the same: what they need together is chosen at once
    for nodes, alike in groupby(claims, key=lambda claim: claim.nodes):
        counts = [claim.count for claim in alike]
        free = nodes & left
        for count in [sum(counts)] if sum(counts) <= len(free) else counts:
            if count <= len(free):
                taken = market.cheapest(free, count)
                left -= taken
                free -= taken
    return held - left


class _Market:
    """The nodes of each trainer in the order in which it gives them, and what the next of them costs.

    What is taken is removed, and prices are kept until they change: thousands of claims come at once.
    """

    def __init__(
        self,
        held: frozenset[str],
        trainers: Iterable[Trainer],
        curves: Mapping[int, Points],
        releasing: Collection[str],
    ) -> None:
        self._trainers = tuple(trainers)
        self._owner = {node: at for at, t in enumerate(self._trainers) for node in t.nodes}
        self._size = [len(t.nodes) for t in self._trainers]
        self._curves = curves
        self._prices = [self._price(at) for at in range(len(self._trainers))]
        going = held.intersection(releasing)
        self._unused = dict.fromkeys([*sorted(going), *sorted(held - going - self._owner.keys())])
        self._stock: list[dict[str, bool]] = []  # node -> whether it trains; those that do go last
        for t in self._trainers:
            train = frozenset(t.members)
            ordered = sorted((node in train, node) for node in (t.nodes & held) - going)
            self._stock.append({node: trains for trains, node in ordered})

    def cheapest(self, free: Collection[str], count: int) -> set[str]:
        """Take the `count` cheapest of `free`. A trainer that loses one values the next one anew."""
        if len(free) == count:  # there is no choice
            taken = set(free)
        else:
            taken = set(islice((node for node in self._unused if node in free), count))
        for node in taken:
            self._count_out(node)
        if len(taken) < count:
            taken |= self._from_trainers(free, count - len(taken))
        for node in taken:
            self._unused.pop(node, None)
            if node in self._owner:
                self._stock[self._owner[node]].pop(node, None)
        return taken

    def _from_trainers(self, free: Collection[str], count: int) -> set[str]:
        """Each trainer offers its next node, and the cheapest offer is taken, again and again."""
        offers: list[tuple[float, bool, str, int]] = []
        rest = [iter(stock.items()) for stock in self._stock]

        def offer(at: int) -> None:
            found = next(((trains, node) for node, trains in rest[at] if node in free), None)
            if found is not None:
                heapq.heappush(offers, (self._prices[at], *found, at))

        for at in range(len(rest)):
            offer(at)
        taken: set[str] = set()
        while len(taken) < count:
            _, _, node, at = heapq.heappop(offers)
            taken.add(node)
            self._count_out(node)
            offer(at)
        return taken

    def _count_out(self, node: str) -> None:
        at = self._owner.get(node)
        if at is not None:
            self._size[at] -= 1
            self._prices[at] = self._price(at)

    def _price(self, at: int) -> float:
        t, size = self._trainers[at], self._size[at]
        return self._worth(t, size) - self._worth(t, size - 1)

    def _worth(self, t: Trainer, nodes: int) -> float:
        return curve.rate(self._curves[t.id], t.spec.fitting(nodes)) * t.spec.weight
