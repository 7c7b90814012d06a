"""The best way to share out the GPUs of a few nodes, all else being as it is: an exact search. Pure.

Only trainers that take part are on the nodes of a window; each of them has its ways to be there. The search
takes the trainers one after the other, and of each the ways from the best on. It turns back where the most
that the others could make of the GPUs that are left would not do. This bound knows nothing of nodes and
rules: it is a knapsack over the ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from bftrainer.allocate.rules import Rules

NEVER = float("-inf")

Counts = tuple[int, ...]
"""GPUs of each node of the window."""


class Way(NamedTuple):
    """A possible share of a window's nodes for a trainer, and its worth with that and its nodes elsewhere.
    `wide`: it is on several nodes then."""

    worth: float
    counts: Counts
    size: int
    wide: bool


@dataclass(frozen=True, slots=True)
class Region:
    """A trainer that takes part: its ways, and the other parts (by their place) that it meets on nodes
    elsewhere. `caps`: the caps (by their place) that count what it has."""

    user: str
    ways: Sequence[Way]
    meets: frozenset[int] = frozenset()
    caps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The best ways, part by part; None if none are worth more than what was to be exceeded. `tries`: how
    many ways the search looked at. `proven`: it has left nothing out."""

    chosen: tuple[Way, ...] | None
    tries: int
    proven: bool


def best(
    parts: Sequence[Region], free: Counts, caps: Sequence[int], rules: Rules, *, above: float, tries: int
) -> Outcome:
    """The ways whose sum is worth most, if that is more than `above`.

    `free` are the GPUs that the parts may have of each node, `caps` what each cap leaves them in the window.
    """
    order = sorted(range(len(parts)), key=lambda i: -_gain(parts[i]))
    ranked = [sorted(parts[i].ways, key=lambda way: -way.worth) for i in order]
    search = _Search(
        parts=[parts[i] for i in order],
        place=order,
        ways=ranked,
        reach=_reach(ranked, sum(free)),
        free=list(free),
        caps=list(caps),
        rules=rules,
        floor=above,
        tries=tries,
        users=[{} for _ in free],
        wide=[set() for _ in free],
        path=[],
        chosen=None,
    )
    if search.reach[0][sum(free)] > above:
        search.go(0, sum(free), 0.0)
    chosen = None
    if search.chosen is not None:
        ways = dict(zip(order, search.chosen, strict=True))
        chosen = tuple(ways[i] for i in range(len(parts)))
    return Outcome(chosen, tries - max(0, search.tries), search.tries > 0)


def _gain(part: Region) -> float:
    worths = [way.worth for way in part.ways]
    return max(worths) - min(worths) if worths else 0.0


def _reach(ways: Sequence[Sequence[Way]], total: int) -> list[list[float]]:
    """reach[i][n]: the most that the parts from i on are worth with n GPUs together, whatever their nodes."""
    reach = [[0.0] * (total + 1)]
    for own in reversed(ways):
        sizes: dict[int, float] = {}
        for way in own:
            if way.size not in sizes:  # the best comes first
                sizes[way.size] = way.worth
        after, most = reach[-1], [NEVER] * (total + 1)
        for size, worth in sizes.items():
            for n in range(size, total + 1):
                most[n] = max(most[n], worth + after[n - size])
        reach.append(most)
    return reach[::-1]


@dataclass(slots=True)
class _Search:
    """Depth first. `users`: on each node the users, with how many parts of theirs; `wide`: the parts of
    several nodes; `path`: the ways so far."""

    parts: list[Region]
    place: list[int]
    ways: list[list[Way]]
    reach: list[list[float]]
    free: list[int]
    caps: list[int]
    rules: Rules
    floor: float
    tries: int
    users: list[dict[str, int]]
    wide: list[set[int]]
    path: list[Way]
    chosen: list[Way] | None

    def go(self, i: int, left: int, worth: float) -> None:
        """Try all ways of part i and those after it, with `left` GPUs left, above those so far."""
        if i == len(self.parts):
            self.floor, self.chosen = worth, list(self.path)
            return
        after = self.reach[i + 1]
        for way in self.ways[i]:
            if worth + way.worth + after[left] <= self.floor:
                return  # the ways to come are worth less
            self.tries -= 1
            if self.tries <= 0:
                return
            if way.size > left or worth + way.worth + after[left - way.size] <= self.floor:
                continue
            if not self._fits(i, way):
                continue
            self._put(i, way, 1)
            self.go(i + 1, left - way.size, worth + way.worth)
            self._put(i, way, -1)

    def _fits(self, i: int, way: Way) -> bool:
        """True if a way keeps caps and rules. What `Rules` says of two trainers is spelt out here, as this is
        asked of thousands of ways in one decision."""
        part, rules = self.parts[i], self.rules
        if any(self.caps[cap] < way.size for cap in part.caps):
            return False
        if way.wide and rules.avoid_interference and part.meets:
            for j, before in enumerate(self.path):
                if before.wide and self.place[j] in part.meets:
                    return False
        for k, n in enumerate(way.counts):
            if not n:
                continue
            if n > self.free[k]:
                return False
            if way.wide and rules.avoid_interference and self.wide[k]:
                return False
            there = self.users[k]
            if there and not rules.users_share and part.user not in there:
                return False
        return True

    def _put(self, i: int, way: Way, sign: int) -> None:
        """Have part i take this way, or with -1 take it back."""
        part = self.parts[i]
        for cap in part.caps:
            self.caps[cap] -= sign * way.size
        for k, n in enumerate(way.counts):
            if not n:
                continue
            self.free[k] -= sign * n
            there = self.users[k]
            there[part.user] = there.get(part.user, 0) + sign
            if not there[part.user]:
                del there[part.user]
            if way.wide:
                (self.wide[k].add if sign > 0 else self.wide[k].remove)(i)
        if sign > 0:
            self.path.append(way)
        else:
            self.path.pop()


@lru_cache(maxsize=1 << 9)
def boxes(low: Counts, high: Counts) -> tuple[tuple[Counts, int, int], ...]:
    """All counts between two, each with its sum and the number of nodes that it uses."""
    ranges = (range(a, b + 1) for a, b in zip(low, high, strict=True))
    return tuple((counts, sum(counts), sum(n > 0 for n in counts)) for counts in product(*ranges))
