"""All placements of GPUs, tried one by one: what the best of them is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from bftrainer.allocate.place import by_node
from bftrainer.allocate.rules import Rules
from bftrainer.model.problem import Candidate
from bftrainer.model.trainer import Trainer
from bftrainer.performance import curve

Spread = tuple[int, ...]
"""How many GPUs of each node."""


def best(
    candidates: Sequence[Candidate],
    trainers: Sequence[Trainer],
    nodes: dict[str, int],
    t_fwd_s: float,
    rules: Rules,
) -> float:
    """The most that any placement on nodes of so many GPUs is worth under these rules, without migration."""
    sizes = tuple(nodes.values())
    ways = [_ways(t, tuple(nodes), sizes) for t in trainers]
    users = [t.spec.user for t in trainers]
    worth = [
        {way: _worth(c, t, way, t_fwd_s) for way in own}
        for c, t, own in zip(candidates, trainers, ways, strict=True)
    ]
    most = [max(own.values()) for own in worth]

    def search(j: int, free: Spread, chosen: tuple[Spread, ...], value: float, known: float) -> float:
        if j == len(trainers):
            return max(known, value) if _allowed(chosen, users, rules) else known
        if value + sum(most[j:]) <= known:
            return known
        for way, own in sorted(worth[j].items(), key=lambda entry: -entry[1]):
            if all(a <= b for a, b in zip(way, free, strict=True)):
                left = tuple(b - a for a, b in zip(way, free, strict=True))
                known = search(j + 1, left, (*chosen, way), value + own, known)
        return known

    return search(0, sizes, (), 0.0, float("-inf"))


def kept(trainers: Sequence[Trainer], nodes: dict[str, int], rules: Rules) -> bool:
    """Whether what trainers hold keeps the rules."""
    held = [by_node(t.nodes) for t in trainers]
    chosen = tuple(tuple(len(own.get(name, ())) for name in nodes) for own in held)
    return _allowed(chosen, [t.spec.user for t in trainers], rules)


def _ways(t: Trainer, names: tuple[str, ...], sizes: Spread) -> list[Spread]:
    held = by_node(t.nodes)
    has = tuple(len(held.get(name, ())) for name in names)

    def one_direction(way: Spread) -> bool:
        pairs = list(zip(way, has, strict=True))
        return all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs)

    def fits(way: Spread) -> bool:
        if t.spec.whole and any(n % t.spec.whole for n in way):
            return False
        return sum(way) == t.spec.fitting(sum(way))

    every: Iterator[Spread] = product(*(range(n + 1) for n in sizes))
    return [way for way in every if one_direction(way) and fits(way)]


def _worth(c: Candidate, t: Trainer, way: Spread, t_fwd_s: float) -> float:
    n, on = sum(way), sum(k > 0 for k in way)
    points = t.spec.across if on > 1 and t.spec.across else t.spec.curve
    assert points is not None
    rate = curve.rate(points, n) if n else 0.0
    held = by_node(t.nodes)
    old = t.spec.across if len(held) > 1 and t.spec.across else t.spec.curve
    assert old is not None
    now = curve.rate(old, len(t.nodes)) if t.nodes and t.spec.allows(len(t.nodes)) else 0.0
    value = t_fwd_s * rate
    if n < len(t.nodes):
        value -= c.costs.down.stall_s * now
    if n > len(t.nodes):
        value -= c.costs.up.stall_s * now + c.costs.up.init_s * max(0.0, rate - now)
    return c.weight * value


def _allowed(chosen: tuple[Spread, ...], users: list[str], rules: Rules) -> bool:
    for on in zip(*chosen, strict=True):
        there = [j for j, n in enumerate(on) if n]
        if not rules.users_share and len({users[j] for j in there}) > 1:
            return False
        wide = [j for j in there if sum(k > 0 for k in chosen[j]) > 1]
        if rules.avoid_interference and len(wide) > 1:
            return False
    return True
