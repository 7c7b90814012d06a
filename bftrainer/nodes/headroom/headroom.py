"""Chooses how many idle nodes are left to main jobs, and which ones. Pure.

Nodes count by their kind: those of the same partitions and with the same GRES, as a main job that waits for
one kind is not helped by another. Idle nodes without our pilots are left alone first. Where they are too few,
our nodes are given back: those that trainers lose least with, as for a main job.

Where main jobs share nodes, what they leave of a node counts before idle nodes, and as the part that it is.
There the scheduler would put small jobs without us. With pilots on all such parts it would put them on idle
nodes, and jobs that need whole nodes would wait for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import ceil
from types import MappingProxyType

from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Claim, Node
from bftrainer.settings.headroom import Headroom

Kind = tuple[tuple[str, ...], str]
"""The partitions and the GRES of nodes."""
AUTO_SHARE = 0.1
"""`headroom: auto` leaves at most this share of what is idle or ours, rounded up."""
ENOUGH = 0.5
"""Share of a node that parts may lack together: no whole node is given back for less."""
SETTLE_S = 30.0
"""Seconds that less must have been enough before less is left: every change costs trainers a rescale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """The nodes left to main jobs as of a poll.

    `nodes` are idle and get none of our pilots. `claims` ask for what is missing, one node each, of the
    nodes that we hold. `wanted` is how many are to be left of each kind, `lower_since` since when fewer would
    do. Of the `usable` nodes, which are idle or ours, `free` have none of our pilots.
    """

    nodes: frozenset[str] = frozenset()
    claims: tuple[Claim, ...] = ()
    wanted: Mapping[Kind, int] = field(default_factory=dict)
    lower_since: Mapping[Kind, float] = field(default_factory=dict)
    usable: int = 0
    free: int = 0

    @property
    def total(self) -> int:
        """Return how many nodes are to be left, of all kinds."""
        return sum(self.wanted.values())


def kind_of(node: Node) -> Kind:
    """The kind of a node."""
    return node.partitions, node.gres


def by_kind(nodes: Iterable[Node], usable: Collection[str]) -> dict[Kind, set[str]]:
    """The names of the usable nodes, by kind."""
    found: defaultdict[Kind, set[str]] = defaultdict(set)
    for node in nodes:
        if node.name in usable:
            found[kind_of(node)].add(node.name)
    return dict(found)


def wanted(
    headroom: Headroom, usable: Mapping[Kind, int], learnt: Mapping[Kind, int], extra: float = 0.0
) -> dict[Kind, int]:
    """Return the nodes of each kind that are to be left, of the `usable` ones: idle, or ours.

    `learnt` is how many main jobs have been seen to need, which counts with `auto`. `extra` is a share that
    is left in any case.
    """
    return {
        kind: min(
            count,
            max(
                headroom.nodes,
                _part(headroom.share, count),
                min(learnt.get(kind, 0), most(count)) if headroom.auto else 0,
                _part(extra, count),
            ),
        )
        for kind, count in usable.items()
    }


def most(count: int) -> int:
    """Return how many of `count` nodes `auto` leaves at most."""
    return _part(AUTO_SHARE, count)


def _part(share: float, count: int) -> int:
    return ceil(share * count - 1e-9)


def keep(
    before: Spared,
    fresh: Mapping[Kind, int],
    usable: Mapping[Kind, Collection[str]],
    *,
    now: float,
    held: Collection[str],
    pool: Collection[str],
    used: Mapping[str, float] = MappingProxyType({}),
) -> Spared:
    """Return what is left to main jobs, where `fresh` says how many of each kind are to be.

    `held` are our nodes that are not being given back, `pool` those that trainers may be about to use. `used`
    is the share of nodes that main jobs have. What was left before is left again rather than others.
    """
    settled, lower = _settled(before, fresh, {kind: len(names) for kind, names in usable.items()}, now)
    left: set[str] = set()
    claims: list[Claim] = []
    idle = 0
    for kind, names in usable.items():
        ours = frozenset(names).intersection(held)
        free = set(names) - ours
        idle += len(free)
        in_turn = sorted(
            free,
            key=lambda name: (
                not used.get(name),
                name in pool,
                name not in before.nodes,
                used.get(name, 0.0),
                name,
            ),
        )
        chosen = _first(in_turn, settled[kind], used)
        left.update(chosen)
        missing = settled[kind] - sum(_worth(name, used) for name in chosen)
        claims += _of_ours(ours, missing, used)
    return Spared(
        nodes=frozenset(left),
        claims=tuple(claims),
        wanted=settled,
        lower_since=lower,
        usable=sum(len(names) for names in usable.values()),
        free=idle,
    )


def _worth(name: str, used: Mapping[str, float]) -> float:
    """Return how much of a node is left to main jobs with this one; a single GPU counts as one."""
    return 1.0 - used.get(name, 0.0) if node_of(name) == name else 1.0


def _first(in_turn: Iterable[str], count: float, used: Mapping[str, float]) -> list[str]:
    """Return the first of these that are worth `count` nodes, as nearly as can be."""
    found = []
    for name in in_turn:
        if count <= ENOUGH:
            break
        found.append(name)
        count -= _worth(name, used)
    return found


def _of_ours(ours: Set[str], missing: float, used: Mapping[str, float]) -> list[Claim]:
    """Ask for what is missing of the nodes that we hold, for those first that main jobs use in part."""
    parts = sorted((name for name in ours if used.get(name)), key=lambda name: (used[name], name))
    found = [Claim(job="", nodes=frozenset({name}), count=1) for name in _first(parts, missing, used)]
    missing -= sum(_worth(name, used) for name in parts[: len(found)])
    whole = frozenset(ours).difference(parts)
    return found + [Claim(job="", nodes=whole, count=1)] * min(max(0, ceil(missing - ENOUGH)), len(whole))


def _settled(
    before: Spared, fresh: Mapping[Kind, int], usable: Mapping[Kind, int], now: float
) -> tuple[dict[Kind, int], dict[Kind, float]]:
    """More is left at once, less only after `SETTLE_S`."""
    found, lower = dict(fresh), dict[Kind, float]()
    for kind, count in fresh.items():
        last = min(before.wanted.get(kind, 0), usable[kind])
        if count < last:
            since = before.lower_since.get(kind, now)
            if now - since < SETTLE_S:
                found[kind], lower[kind] = last, since
    return found, lower
