"""Which of our nodes to give up for jobs of the main scheduler that could start on them. Pure.

The price of a node is the speed that its trainer loses without it; nodes that train nothing yet cost nothing.
So the main jobs get all that they need, at once, and trainers lose as little as that allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby

import numpy as np
import numpy.typing as npt

from bftrainer.model.machine import Claim
from bftrainer.model.trainer import Points, Trainer
from bftrainer.performance import curve

GOING, UNUSED = -2e300, -1e300
"""Prices of nodes that we give back already, and of those that no trainer has: below all others."""


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
    """What every node costs that is held.

    Every node that is taken costs one comparison of arrays, however many trainers and claims there are: users
    make both, and main jobs wait for the answer. Nodes are numbered in the order of their names.
    """

    def __init__(
        self,
        held: frozenset[str],
        trainers: Iterable[Trainer],
        curves: Mapping[int, Points],
        releasing: Collection[str],
    ) -> None:
        self._trainers, self._curves = tuple(trainers), curves
        self._names = sorted(held)
        self._number = {name: i for i, name in enumerate(self._names)}
        self._size = [len(t.nodes) for t in self._trainers]
        self._nodes = [np.array(sorted(self._numbers(t.nodes)), dtype=np.intp) for t in self._trainers]
        self._owner = {int(i): at for at, own in enumerate(self._nodes) for i in own}
        self._rank = np.arange(len(held))  # among those of one price: those that train go last
        for i in self._numbers(node for t in self._trainers for node in t.members):
            self._rank[i] += len(held)
        self._price = np.full(len(held), UNUSED)
        self._fixed = np.zeros(len(held), dtype=bool)  # they are taken, or going already
        for at in range(len(self._trainers)):
            self._value(at)
        going = list(self._numbers(releasing))
        self._fixed[going], self._price[going], self._rank[going] = True, GOING, going

    def cheapest(self, free: Collection[str], count: int) -> set[str]:
        """Take the `count` cheapest of `free`. A trainer that loses one values the next one anew."""
        here = np.fromiter(self._numbers(free), dtype=np.intp, count=len(free))
        if len(free) == count:  # there is no choice
            picked = here.tolist()
            for i in picked:
                self._take(i)
        else:
            picked = [self._pick(here) for _ in range(count)]
        return {self._names[i] for i in picked}

    def _pick(self, here: npt.NDArray[np.intp]) -> int:
        prices = self._price[here]
        best = here[prices == prices.min()]
        found = int(best[self._rank[best].argmin()])
        self._take(found)
        return found

    def _take(self, i: int) -> None:
        self._fixed[i], self._price[i] = True, np.inf
        at = self._owner.get(i)
        if at is not None:
            self._size[at] -= 1
            self._value(at)

    def _value(self, at: int) -> None:
        """What any of a trainer's nodes costs now."""
        t, size, own = self._trainers[at], self._size[at], self._nodes[at]
        self._price[own[~self._fixed[own]]] = self._worth(t, size) - self._worth(t, size - 1)

    def _worth(self, t: Trainer, nodes: int) -> float:
        return curve.rate(self._curves[t.id], t.spec.fitting(nodes)) * t.spec.weight

    def _numbers(self, nodes: Iterable[str]) -> Iterator[int]:
        return (self._number[node] for node in nodes if node in self._number)
