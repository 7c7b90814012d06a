"""Better placements near one that was found: the GPUs of a few nodes at a time are shared out again. Pure.

The counts of the allocators know nothing of nodes. Where nodes are partly used, or the rules about who may
share one keep trainers from free GPUs, fewer GPUs for one trainer may be worth more to another. On small
pools one exact search over all nodes (`allocate.window`) finds the best placement and proves it. On others
searches go through single nodes, pairs and, of few nodes, threes, as long as one finds something better.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

from bftrainer.allocate import window
from bftrainer.allocate.place import NONE, by_node, counts_of
from bftrainer.allocate.rules import Rules
from bftrainer.allocate.window import Region, Way
from bftrainer.model.gpus import node_of
from bftrainer.model.problem import Allocation, Cap

WAYS = 9_000
"""A pool is searched at once if all trainers together can be on it in at most this number of ways."""
AT_ONCE = 15_000
"""Ways that this search looks at, at most."""
TAKERS = 6
"""Trainers from outside that may come to a window's nodes, at most: those that would gain most."""
FREED = 12
"""Nodes with free GPUs that pairs are made with."""
FEW = 12
"""Nodes of a pool up to which all pairs are made, and threes."""
TIDY = 1e-10
"""Each node of a trainer costs this share of all worth: of placements that are worth the same, that one is
best in which trainers are on the fewest nodes."""
OVERHEAD = 20
"""Tries that a window counts as, with one for each of its ways, even if its bound rules it out."""

Row = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolder:
    """A trainer: what it holds (of which it is `training` on some) and its worth by count, on one node
    (`alone`) and on several (`across`); -inf where a count is not allowed."""

    trainer: int
    user: str
    held: frozenset[str]
    training: Collection[str]
    whole: int
    alone: Row
    across: Row

    def worth(self, size: int, *, wide: bool) -> float:
        """Return the worth of `size` GPUs."""
        row = self.across if wide else self.alone
        return row[size] if size < len(row) else window.NEVER


@dataclass(frozen=True, slots=True)
class PolishedPlacement:
    """A placement, what it is worth, and whether no other is worth more."""

    worth: float
    target: Allocation = field(default_factory=dict)
    proven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Bounds of placements: the pool, the nodes that stay as they are, and the users' limits."""

    pool: frozenset[str]
    still: frozenset[str]
    caps: Sequence[Cap]
    rules: Rules


def polished(
    holders: Sequence[GpuHolder], found: PolishedPlacement, ground: Ground, *, enough: float, tries: int
) -> PolishedPlacement:
    """Return the best placement that is found from `found` in `tries`, or one that is worth `enough`. Its
    worth is less by `TIDY`."""
    board = _Board.of(holders, found.target, ground, TIDY * max(1.0, abs(found.worth)))
    worth, proven = found.worth, False
    if board.small:
        got = board.improve(tuple(board.sizes), list(range(len(holders))), AT_ONCE)
        proven = got.proven and not ground.still
        worth += got.gain
    better = not proven
    while better and worth < enough and tries > 0:
        better = False
        for nodes in board.windows():
            got = board.improve(nodes, board.takers(nodes), tries)
            tries -= got.tries
            worth += got.gain
            better = better or got.gain > 0
            if tries <= 0 or worth >= enough:
                break
    return PolishedPlacement(worth, board.named(ground.pool, found.target), proven)


@dataclass(frozen=True, slots=True)
class _Step:
    gain: float
    tries: int
    proven: bool


@dataclass(slots=True)
class _Board:
    """The GPUs by trainer and node, `now` (`total`: their sum) and `held` before. Trainers go by their place
    in `holders`. `on` each node are these now, and those `had` GPUs there; `eager` are those that would gain
    by more, most first, and `gains` by how much; `touched` are nodes that are shared out otherwise than at
    first."""

    holders: Sequence[GpuHolder]
    ground: Ground
    tidy: float
    sizes: dict[str, int]
    held: list[Mapping[str, int]]
    now: list[dict[str, int]]
    total: list[int]
    on: dict[str, set[int]]
    had: dict[str, list[int]]
    gains: list[float]
    eager: list[int]
    touched: set[str]

    @classmethod
    def of(cls, holders: Sequence[GpuHolder], target: Allocation, ground: Ground, tidy: float) -> _Board:
        sizes = dict(sorted(counts_of(ground.pool).items()))
        held = [counts_of(h.held) for h in holders]
        now = [dict(counts_of(target.get(h.trainer, NONE))) for h in holders]
        on: dict[str, set[int]] = {node: set() for node in sizes}
        had: dict[str, list[int]] = {node: [] for node in sizes}
        for j, own in enumerate(now):
            for node in own:
                on[node].add(j)
            for node in held[j]:
                had[node].append(j)
        movable = {node: n for node, n in sizes.items() if node not in ground.still}
        total = [sum(own.values()) for own in now]
        gains = [0.0] * len(holders)
        board = cls(holders, ground, tidy, movable, held, now, total, on, had, gains, [], set())
        board.rank(range(len(holders)))
        return board

    def rank(self, changed: Iterable[int]) -> None:
        """Find out who would gain most by a GPU more, of the next ones that a window may give, now that
        these have others."""
        room = 2 * max(self.sizes.values(), default=0)
        for j in changed:
            size = self.total[j]
            ahead = self.holders[j].alone[size + 1 : size + room + 1]
            own = self.worth(j)
            self.gains[j] = max([(worth - own) / n for n, worth in enumerate(ahead, 1)], default=0.0)
        ranked = sorted((-gain, j) for j, gain in enumerate(self.gains) if gain > 0)
        self.eager = [j for _, j in ranked]

    def worth(self, j: int) -> float:
        """Return a trainer's worth now, less its nodes' cost."""
        on = len(self.now[j])
        return self.holders[j].worth(self.total[j], wide=on > 1) - self.tidy * on

    @property
    def small(self) -> bool:
        """Return whether the pool can be searched at once."""
        ways = len(self.holders)
        for n in self.sizes.values():
            ways *= n + 1
            if ways > WAYS:
                return False
        return True

    def free(self, node: str) -> int:
        """Return how many GPUs of a node nobody has."""
        return self.sizes[node] - sum(self.now[j][node] for j in self.on[node])

    def windows(self) -> Iterator[tuple[str, ...]]:
        """Nodes to share out again: each, then pairs of which one has free GPUs. One of nodes that are alike
        stands for all."""
        kinds: dict[object, list[str]] = {}
        for node in self.sizes:
            kinds.setdefault(self._kind(node), []).append(node)
        first = sorted((own[0] for own in kinds.values()), key=lambda node: (-self.free(node), node))
        yield from ((node,) for node in first)
        loose = [node for own in kinds.values() for node in own[:2] if self.free(node)]
        loose.sort(key=lambda node: (-self.free(node), node))
        yield from combinations(loose[:FREED], 2)
        full = [node for node in first if not self.free(node)]
        yield from ((node, other) for node in loose[:FREED] for other in full)
        if len(self.sizes) <= FEW:
            yield from combinations(full, 2)
            yield from combinations(self.sizes, 3)

    def _kind(self, node: str) -> object:
        kind = [self.sizes[node]]  # flat: there are as many as nodes
        for j in sorted(self.on[node].union(self.had[node])):
            kind += j, self.now[j].get(node, 0), self.held[j].get(node, 0)
        return tuple(kind)

    def takers(self, nodes: Sequence[str]) -> list[int]:
        """Return the trainers in a window: those there, and those that would gain most by one more GPU."""
        there = {j for node in nodes for j in self.on[node]}
        others = islice((j for j in self.eager if j not in there), TAKERS)
        return [*sorted(there), *others]

    def improve(self, nodes: Sequence[str], who: Sequence[int], tries: int) -> _Step:
        """Share these nodes out again among these trainers, if that is worth more."""
        parts = [self._part(j, nodes, who) for j in who]
        before = sum(self.worth(j) for j in who)
        got = window.best(
            parts,
            tuple(self.sizes[node] for node in nodes),
            self._caps(nodes),
            self.ground.rules,
            above=before + 0.1 * self.tidy,
            tries=tries,
        )
        spent = got.tries + OVERHEAD + sum(len(part.ways) for part in parts)
        if got.chosen is None:
            return _Step(0.0, spent, got.proven)
        for j, way in zip(who, got.chosen, strict=True):
            self._set(j, nodes, way)
        self.rank(who)
        return _Step(sum(way.worth for way in got.chosen) - before, spent, got.proven)

    def _set(self, j: int, nodes: Sequence[str], way: Way) -> None:
        self.total[j] += way.size - sum(self.now[j].get(node, 0) for node in nodes)
        for node, n in zip(nodes, way.counts, strict=True):
            if n != self.now[j].get(node, 0):
                self.touched.add(node)
            if n:
                self.now[j][node] = n
                self.on[node].add(j)
            else:
                self.now[j].pop(node, None)
                self.on[node].discard(j)

    def _caps(self, nodes: Sequence[str]) -> list[int]:
        caps = []
        for cap in self.ground.caps:
            own = [j for j, h in enumerate(self.holders) if h.trainer in cap.trainers]
            used = sum(self.total[j] - sum(self.now[j].get(node, 0) for node in nodes) for j in own)
            caps.append(cap.n_max - used)
        return caps

    def _part(self, j: int, nodes: Sequence[str], who: Sequence[int]) -> Region:
        h, now, held = self.holders[j], self.now[j], self.held[j]
        out = {node: n for node, n in now.items() if node not in nodes}
        size = sum(out.values())
        near = {i for node in out for i in self.on[node] if i != j}
        still_wide = any(len(self.now[i]) > 1 for i in near if i not in who)
        crowded = self.ground.rules.crowded(True, still_wide)
        ways = []
        for counts, n, on in self._boxes(j, nodes, out):
            wide = len(out) + on > 1
            if wide and crowded:
                continue
            row = h.across if wide else h.alone
            worth = row[size + n] if size + n < len(row) else window.NEVER
            if worth > window.NEVER and (not h.whole or _whole(h, counts, nodes, held)):
                ways.append(Way(worth - self.tidy * (len(out) + on), counts, n, wide))
        caps = tuple(i for i, cap in enumerate(self.ground.caps) if h.trainer in cap.trainers)
        meets = frozenset(place for place, i in enumerate(who) if i in near)
        return Region(h.user, ways, meets, caps)

    def _boxes(
        self, j: int, nodes: Sequence[str], out: Mapping[str, int]
    ) -> Iterable[tuple[window.Counts, int, int]]:
        """The counts in the window with which the trainer only gains or only loses, as it does elsewhere."""
        held = self.held[j]
        has = tuple(held.get(node, 0) for node in nodes)
        none, all_ = (0,) * len(nodes), tuple(self.sizes[node] for node in nodes)
        gained = any(n > held.get(node, 0) for node, n in out.items())
        lost = any(out.get(node, 0) < n for node, n in held.items() if node not in nodes)
        if lost:
            return window.boxes(none, has)
        if gained or not any(has):
            return window.boxes(has, all_)
        return dict.fromkeys((*window.boxes(has, all_), *window.boxes(none, has)))

    def named(self, pool: frozenset[str], target: Allocation) -> Allocation:
        """The GPUs for the counts: on nodes where these are others than before, what trainers hold first."""
        if not self.touched:
            return target
        free: dict[str, set[str]] = {node: set() for node in self.touched}
        for gpu in pool:
            if (node := node_of(gpu)) in free:
                free[node].add(gpu)
        found: dict[int, set[str]] = {}
        concerned = [
            (h, now) for h, now in zip(self.holders, self.now, strict=True) if self._moves(h, now, target)
        ]
        for h, now in concerned:
            mine = {gpu for gpu in target.get(h.trainer, NONE) if node_of(gpu) not in free}
            ranked = sorted(
                (gpu for gpu in h.held & pool if node_of(gpu) in free),
                key=lambda gpu: (gpu not in h.training, gpu),
            )
            for node, own in by_node(ranked).items():
                kept = own[: now.get(node, 0)]
                mine.update(kept)
                free[node].difference_update(kept)
            found[h.trainer] = mine
        for h, now in concerned:
            mine = found[h.trainer]
            for node in now.keys() & self.touched:
                missing = now[node] - sum(node_of(gpu) == node for gpu in mine)
                taken = sorted(free[node])[:missing]
                mine.update(taken)
                free[node].difference_update(taken)
        return {**target, **{trainer: frozenset(own) for trainer, own in found.items()}}

    def _moves(self, h: GpuHolder, now: Mapping[str, int], target: Allocation) -> bool:
        """Return whether a trainer is, was or would be on a node that is shared out otherwise."""
        held, then = counts_of(h.held), counts_of(target.get(h.trainer, NONE))
        return any(node in now or node in held or node in then for node in self.touched)


def _whole(h: GpuHolder, counts: window.Counts, nodes: Sequence[str], held: Mapping[str, int]) -> bool:
    """Return whether a trainer on whole nodes has none of its nodes in part, but as it has them already."""
    return all(n in (0, h.whole, held.get(node, 0)) for n, node in zip(counts, nodes, strict=True))
