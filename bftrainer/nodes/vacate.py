"""Chooses which of our nodes to give up for jobs of the main scheduler that could start on them.

The price of a node is the speed that its trainer loses without it; nodes that train nothing yet cost nothing.
So the main jobs get all that they need, at once, and trainers lose as little as that allows.

A trainer that allows some sizes only, or needs several nodes, loses speed in steps: two of its nodes may cost
less than one each of two others. So all nodes of a claim are chosen together there. Choosing is pure;
`ClaimedNodes` does it in a thread of its own, as thousands of claims may come at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import groupby
from math import inf

import numpy as np
import numpy.typing as npt

from bftrainer.model.machine import Claim
from bftrainer.model.trainer import Points, Trainer
from bftrainer.performance import curve

GOING, UNUSED = -2e300, -1e300
"""Prices of nodes that we give back already, and of those that no trainer has: below all others."""
FREE = -1e200
"""Prices below are of such nodes."""
MOST_WORK = 50_000
"""Nodes compared in all for claims of several nodes on trainers that lose speed in steps; further claims get
the cheapest node again and again."""


def choose(
    claims: Iterable[Claim],
    held: frozenset[str],
    trainers: Iterable[Trainer],
    curves: Mapping[int, Points],
    releasing: Collection[str] = (),
    since: Mapping[str, float] | None = None,
) -> frozenset[str]:
    """The nodes of `held` to give up: for each claim the cheapest `count` of those that are left.

    A claim for which too few are left gets none, as its job could not start anyway. `curves` has each
    trainer's samples/s by nodes. Nodes of `held` that we are `releasing` already cost nothing more. Of nodes
    at one price that goes first which we have held longest, which `since` says: its pilot ends first, and a
    scheduler that preempts, perhaps at this moment, begins with it.
    """
    market = _Market(held, trainers, curves, releasing, since or {})
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


def spared(going: Sequence[str], gone: Iterable[str], claims: Iterable[Claim]) -> set[str]:
    """Those of `going`, nodes that are about to be given up for claims, that are no longer needed: the
    scheduler itself has taken other nodes for these claims meanwhile, which are `gone`. The last of `going`
    are spared first."""
    left = list(going)
    found: set[str] = set()
    claims = tuple(claims)
    for node in gone:
        wanted = [claim.nodes for claim in claims if node in claim.nodes]
        saved = next((name for name in reversed(left) if any(name in nodes for nodes in wanted)), None)
        if saved is not None and node not in going:
            left.remove(saved)
            found.add(saved)
    return found


class _Market:
    """The cost of every held node.

    Every node that is taken costs one comparison of arrays, however many trainers and claims there are: users
    make both, and main jobs wait for the answer. Nodes are numbered by how long we have held them.
    """

    def __init__(
        self,
        held: frozenset[str],
        trainers: Iterable[Trainer],
        curves: Mapping[int, Points],
        releasing: Collection[str],
        since: Mapping[str, float],
    ) -> None:
        self._trainers, self._curves = tuple(trainers), curves
        self._names = sorted(held, key=lambda name: (since.get(name, inf), name))
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
        self._work_left = MOST_WORK
        going = list(self._numbers(releasing))
        self._fixed[going], self._price[going], self._rank[going] = True, GOING, going

    def cheapest(self, free: Collection[str], count: int) -> set[str]:
        """Take the `count` cheapest of `free`. A trainer that loses one revalues the next one."""
        here = np.fromiter(self._numbers(free), dtype=np.intp, count=len(free))
        if len(free) == count:  # there is no choice
            picked = here.tolist()
            for i in picked:
                self._take(i)
        else:
            free_of_charge = min(count, int((self._price[here] < FREE).sum()))
            picked = [self._pick(here) for _ in range(free_of_charge)]
            picked += self._priced(here, count - free_of_charge)
        return {self._names[i] for i in picked}

    def _pick(self, here: npt.NDArray[np.intp]) -> int:
        prices = self._price[here]
        best = here[prices == prices.min()]
        found = int(best[self._rank[best].argmin()])
        self._take(found)
        return found

    def _priced(self, here: npt.NDArray[np.intp], count: int) -> list[int]:
        """Take `count` nodes of trainers, which together cost as little as they can."""
        stepped = self._stepped_in(here) if count > 1 else {}
        if not stepped:
            return [self._pick(here) for _ in range(count)]
        rest = np.setdiff1d(here, np.concatenate([*stepped.values()]))
        before = self._price.copy(), self._fixed.copy(), self._size.copy()
        costs, others = [0.0], list[int]()
        while len(others) < count and np.isfinite(least := self._price[rest].min(initial=np.inf)):
            costs.append(costs[-1] + float(least))
            others.append(self._pick(rest))
        self._price, self._fixed, self._size = before
        steps = [self._costs(at, len(own)) for at, own in stepped.items()]
        given = shares(steps, np.array(costs), count)
        picked = [int(i) for n, own in zip(given, stepped.values(), strict=True) for i in own[:n]]
        picked += others[: count - len(picked)]
        for i in picked:
            self._take(i)
        return picked

    def _stepped_in(self, here: npt.NDArray[np.intp]) -> dict[int, npt.NDArray[np.intp]]:
        """Trainers that lose speed in steps, with their nodes among these, those first that go first. None
        once that has taken long: main jobs wait."""
        self._work_left -= len(self._stepped)
        if not self._stepped or self._work_left < 0:
            return {}
        among = np.zeros(len(self._names), dtype=bool)
        among[here] = True
        found = {}
        for at in self._stepped:
            own = self._nodes[at]
            own = own[among[own] & ~self._fixed[own]]
            if len(own):
                found[at] = own[self._rank[own].argsort()]
        self._work_left -= sum(len(own) for own in found.values()) * (1 + len(here) // 1000)
        return found if self._work_left >= 0 else {}

    @cached_property
    def _stepped(self) -> list[int]:
        return [at for at, t in enumerate(self._trainers) if is_stepped(self._worths(t, len(t.nodes)))]

    def _costs(self, at: int, most: int) -> Floats:
        """Return the cost of 0, 1, ..., `most` of a trainer's nodes now."""
        worths = self._worths(self._trainers[at], self._size[at])
        return np.asarray(worths[-1] - worths[::-1][: most + 1])

    def _worths(self, t: Trainer, nodes: int) -> Floats:
        return np.array([self._worth(t, n) for n in range(nodes + 1)])

    def _take(self, i: int) -> None:
        self._fixed[i], self._price[i] = True, np.inf
        at = self._owner.get(i)
        if at is not None:
            self._size[at] -= 1
            self._value(at)

    def _value(self, at: int) -> None:
        """Set the present cost of each of a trainer's nodes."""
        t, size, own = self._trainers[at], self._size[at], self._nodes[at]
        self._price[own[~self._fixed[own]]] = self._worth(t, size) - self._worth(t, size - 1)

    def _worth(self, t: Trainer, nodes: int) -> float:
        return curve.rate(self._curves[t.id], t.spec.fitting(nodes)) * t.spec.weight

    def _numbers(self, nodes: Iterable[str]) -> Iterator[int]:
        return (self._number[node] for node in nodes if node in self._number)


Floats = npt.NDArray[np.float64]

SAME = 1e-9
"""Speeds that differ by no more than this part of the largest count as the same."""


def is_stepped(worth: Floats) -> bool:
    """Return whether a node may cost more than the next one of its trainer, which is worth[n] on n nodes."""
    gains = np.diff(worth)
    return bool((np.diff(gains) > SAME * max(worth.max(), 1e-300)).any())


def shares(steps: Sequence[Floats], rest: Floats, count: int) -> list[int]:
    """Return the nodes that each trainer gives, so that `count` nodes cost as little as they can together
    with those of the rest.

    `steps` has what 0, 1, ... nodes of each trainer cost, and `rest` the same for the rest.
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


class ClaimedNodes:
    """`trainers` are those that may hold nodes; `curves` estimates the samples/s by nodes of trainers, in our
    thread."""

    def __init__(
        self,
        trainers: Callable[[], Sequence[Trainer]],
        curves: Callable[[Sequence[Trainer]], Mapping[int, Points]],
    ) -> None:
        self._trainers, self._curves = trainers, curves
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="claims")
        self._thread.submit(int)  # it begins now: later the machine may have no thread for us

    async def choose(
        self,
        claims: Sequence[Claim],
        held: frozenset[str],
        releasing: frozenset[str],
        since: Mapping[str, float],
    ) -> frozenset[str]:
        """See `choose`. The event loop goes on meanwhile, so that what is held may have changed."""
        active = self._trainers()

        def chosen() -> frozenset[str]:
            trainers = tuple(trainer for trainer in active if trainer.nodes)
            return choose(claims, held, trainers, self._curves(trainers), releasing, since)

        return await asyncio.get_running_loop().run_in_executor(self._thread, chosen)

    def close(self) -> None:
        """Let go of the thread; what waits for it is given up."""
        self._thread.shutdown(wait=False, cancel_futures=True)
