"""Counts -> GPUs of nodes, without migration: a trainer only gains or only loses GPUs (eq. 6).

A trainer that shrinks keeps GPUs on the fewest nodes. One that grows takes free GPUs of its own nodes first.
What is missing comes from the node with most free GPUs, or, where that has too few, from those after it. So
trainers that begin small do not keep each other from growing. Only a trainer on one node that will never have
more takes the node on which it fits best.

Two rules may leave a trainer with fewer GPUs than its count: users that may not share nodes, and trainers of
several nodes, which are kept apart where they would slow each other down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from bftrainer.allocate.rules import Rules
from bftrainer.model.gpus import node_of
from bftrainer.model.problem import Allocation

NONE: frozenset[str] = frozenset()
REMEMBERED = 512
"""GPUs of a set above which only the last few sets are remembered with their nodes, to save memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A trainer that should have `count` GPUs, and holds `held`, on some of which it is `training`.

    It may have `most` GPUs one day. `whole` above 0: it takes nodes with this many free GPUs, all of these.
    `user` matters where users are kept apart. `barred` are those that it may not have unless it has them.
    """

    trainer: int
    count: int
    most: int = 0
    held: frozenset[str] = NONE
    training: Collection[str] = NONE
    whole: int = 0
    user: str = ""
    barred: frozenset[str] = NONE


def place(wants: Sequence[Want], pool: frozenset[str], rules: Rules) -> dict[int, frozenset[str]]:
    """The GPUs of `pool` for these trainers, which choose in the order given.

    They hold GPUs of the pool only, and others hold none.

    Raises:
        ValueError: the counts ask for more GPUs than the pool has.
    """
    asked = sum(want.count for want in wants)
    if asked > len(pool):
        raise ValueError(f"{asked} GPUs asked of a pool of {len(pool)}")
    kept = {w.trainer: w.held if w.count >= len(w.held) else _fewer(w) for w in wants}
    board = _Board.of(wants, kept, pool, rules)
    for want in wants:
        if want.count > len(kept[want.trainer]):
            kept[want.trainer] |= board.grow(want, want.count - len(kept[want.trainer]))
    return kept


def nodes_of(gpus: Iterable[str]) -> frozenset[str]:
    """The nodes on which GPUs are."""
    return frozenset(map(node_of, gpus))


def by_node(gpus: Iterable[str]) -> dict[str, list[str]]:
    """GPUs by node, in the order given."""
    found: dict[str, list[str]] = {}
    for gpu in gpus:
        found.setdefault(node_of(gpu), []).append(gpu)
    return found


@lru_cache(maxsize=2)
def _sorted(pool: frozenset[str]) -> tuple[tuple[str, list[str]], ...]:
    """The nodes with their GPUs, in order; a decision asks twice."""
    return tuple(by_node(sorted(pool)).items())


def counts_of(gpus: frozenset[str]) -> Mapping[str, int]:
    """Number of these GPUs on each node. Most trainers keep theirs from one decision to the next, and each
    decision asks several times."""
    return _small(gpus) if len(gpus) <= REMEMBERED else _large(gpus)


def _counted(gpus: frozenset[str]) -> Mapping[str, int]:
    return MappingProxyType(Counter(map(node_of, gpus)))


_small = lru_cache(maxsize=1 << 11)(_counted)
_large = lru_cache(maxsize=4)(_counted)


def within(gpus: frozenset[str], pool: frozenset[str]) -> frozenset[str]:
    """The GPUs that are in the pool: the same set where all are, which `counts_of` finds faster."""
    return gpus if gpus <= pool else gpus & pool


def _fewer(want: Want) -> frozenset[str]:
    """GPUs that a shrinking trainer keeps: first those it trains on, on as few nodes as possible."""
    kept: set[str] = set()
    for choice in (want.held.intersection(want.training), want.held.difference(want.training)):
        left = by_node(sorted(choice))
        while left and len(kept) < want.count:
            need = want.count - len(kept)
            own = nodes_of(kept)
            node = min(left, key=lambda n: (n not in own, *_fit(len(left[n]), need), n))
            kept.update(left.pop(node)[:need])
    return frozenset(kept)


def _fit(there: int, need: int) -> tuple[bool, int]:
    """Sorts nodes: those with enough first, the tightest of them; then those with most."""
    return there < need, there if there >= need else -there


@dataclass(slots=True)
class _Board:
    """The free GPUs of each node, and which trainers are on it, while GPUs are given out.

    Nodes that have equally many free GPUs are in one of `levels`. Nodes to which
    nobody can come are not in `on`.
    """

    rules: Rules
    free: dict[str, list[str]]
    levels: list[dict[str, None]]
    on: dict[str, set[int]]  # node -> trainers
    spread: dict[int, set[str]]  # trainer -> nodes
    user_of: dict[int, str]

    @classmethod
    def of(cls, wants: Sequence[Want], kept: Allocation, pool: frozenset[str], rules: Rules) -> _Board:
        taken = NONE.union(*kept.values())
        left = {node: [gpu for gpu in own if gpu not in taken] for node, own in _sorted(pool)}
        free = {node: own for node, own in left.items() if own}
        most = max(map(len, free.values()), default=0)
        levels: list[dict[str, None]] = [{} for _ in range(most + 1)]
        for node, gpus in free.items():
            levels[len(gpus)][node] = None
        growing = (w.trainer for w in wants if w.count > len(kept[w.trainer]))
        asked = free.keys() | {node for trainer in growing for node in counts_of(kept[trainer])}
        board = cls(rules, free, levels, {}, {}, {w.trainer: w.user for w in wants})
        for trainer, own in kept.items():
            if own:
                nodes = counts_of(own)
                board.spread[trainer] = set(nodes)
                for node in nodes.keys() & asked:
                    board.on.setdefault(node, set()).add(trainer)
        return board

    def grow(self, want: Want, need: int) -> frozenset[str]:
        """Give a trainer `need` more GPUs, or as many as it may have."""
        if want.whole:
            return self._grow_whole(want, need)
        own = self.spread.get(want.trainer, set())
        ahead = self._single(want, need, own)
        if ahead is not None:
            return self._take(want, ahead, need)
        return self._several(want, need, own)

    def _single(self, want: Want, need: int, own: set[str]) -> str | None:
        """The node on which it fits alone; None if there is none."""
        if len(own) > 1:
            return None
        if own:
            (node,) = own
            return node if len(self._usable(want, node)) >= need else None
        return self._fitting(want, need, several=False)

    def _several(self, want: Want, need: int, own: set[str]) -> frozenset[str]:
        taken: set[str] = set()
        for node in sorted(own, key=lambda n: (-len(self.free.get(n, ())), n)):
            taken |= self._take(want, node, need - len(taken))
        if len(taken) == need or not self._may_spread(want, own):
            return frozenset(taken)
        while len(taken) < need:
            left = need - len(taken)
            found = self._fitting(want, left, several=True) or self._largest(want, left)
            if found is None:
                break
            taken |= self._take(want, found, left)
        return frozenset(taken)

    def _grow_whole(self, want: Want, need: int) -> frozenset[str]:
        """Complete the nodes of which it has lost GPUs, then take nodes that are all free."""
        taken: set[str] = set()
        own = by_node(want.held)
        for node in sorted(own):
            missing = want.whole - len(own[node])
            if 0 < missing <= min(need - len(taken), len(self._usable(want, node))):
                taken |= self._take(want, node, missing)
        while need - len(taken) >= want.whole:
            found = self._fitting(want, want.whole, several=True, empty=True)
            if found is None:
                break
            taken |= self._take(want, found, want.whole)
        return frozenset(taken)

    # what a trainer may use

    def _usable(self, want: Want, node: str) -> list[str]:
        there = self.free.get(node, [])
        return [gpu for gpu in there if gpu not in want.barred] if want.barred else there

    def _admits(self, want: Want, node: str, *, several: bool) -> bool:
        """True if a trainer may come to a node, on `several` nodes then or on this alone."""
        crowds, alike = self.rules.crowded(several, True), self.rules.users_share
        for t in self.on.get(node, ()):  # a plain loop: it sees most nodes for most trainers
            if t != want.trainer and (
                (crowds and len(self.spread[t]) > 1)
                or (not alike and self.rules.strangers(want.user, self.user_of[t]))
            ):
                return False
        return True

    def _may_spread(self, want: Want, own: set[str]) -> bool:
        """True if the trainers on its nodes allow it to use further nodes."""
        return all(self._admits(want, node, several=True) for node in own)

    def _fitting(self, want: Want, need: int, *, several: bool, empty: bool = False) -> str | None:
        """A node with enough usable GPUs: the one with fewest for a trainer that will never have more, which
        leaves others whole, and with most for any other, which leaves all room to grow. `empty`: nobody is
        there."""
        roomiest = several or want.count < want.most
        for level in self.levels[need:][:: -1 if roomiest else 1]:
            for node in level:
                if empty and self.on.get(node):
                    continue
                if self._admits(want, node, several=several) and len(self._usable(want, node)) >= need:
                    return node
        return None

    def _largest(self, want: Want, need: int) -> str | None:
        """The node with most usable GPUs, fewer than needed."""
        best, most = None, 0
        top = len(self.levels) if want.barred else min(need, len(self.levels))
        for size in range(top - 1, 0, -1):
            if size <= most:
                break
            for node in self.levels[size]:
                usable = len(self._usable(want, node))
                if usable > most and self._admits(want, node, several=True):
                    best, most = node, usable
                    if usable == size:
                        break
        return best

    def _take(self, want: Want, node: str, need: int) -> frozenset[str]:
        usable = self._usable(want, node)[:need]
        if not usable:
            return NONE
        taken = frozenset(usable)
        there = self.free[node]
        del self.levels[len(there)][node]
        self.free[node] = left = [gpu for gpu in there if gpu not in taken]
        self.levels[len(left)][node] = None
        self.spread.setdefault(want.trainer, set()).add(node)
        self.on.setdefault(node, set()).add(want.trainer)
        return taken
