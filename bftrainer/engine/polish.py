"""Better placements near one that was found: what one trainer gives up, another may be able to use. Pure.

The counts of the allocators know nothing of nodes. Where nodes are partly used, or the rules about who may
share one keep trainers from free GPUs, fewer GPUs for one trainer may be worth more to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations

from bftrainer.allocate.place import NONE, nodes_of
from bftrainer.model.gpus import node_of
from bftrainer.model.problem import Allocation, Candidate


@dataclass(frozen=True, slots=True)
class Move:
    """Counts to try. The trainer `first` chooses GPUs before others; those on the node `left` give up GPUs
    there before any others."""

    counts: Mapping[int, int]
    first: int | None = None
    left: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A placement, and what it is worth."""

    worth: float
    target: Allocation = field(default_factory=dict)


def polished(
    candidates: tuple[Candidate, ...], found: Found, size: int, tries: int, attempt: Callable[[Move], Found]
) -> Found:
    """The best placement that is found from `found` in so many tries; `size` is that of the pool."""
    better = True
    while better:
        better = False
        for move in _moves(candidates, found.target, size):
            if tries <= 0:
                return found
            tries -= 1
            after = attempt(move)
            if after.worth > found.worth + 1e-9 * max(1.0, abs(found.worth)):
                found, better = after, True
                break
    return found


def _moves(candidates: tuple[Candidate, ...], target: Allocation, size: int) -> Iterator[Move]:
    counts = {c.trainer: len(target.get(c.trainer, NONE)) for c in candidates}
    left = size - sum(counts.values())
    for c in candidates:
        yield from _changes(c, counts, left)
    yield from _evictions(candidates, target, counts, left)
    for giver, taker in permutations(candidates, 2):
        own = counts[giver.trainer]
        for less in sorted({0, giver.fitting(own - 1), giver.fitting(own // 2)} - {own}) if own else ():
            freed = {**counts, giver.trainer: less}
            yield from _changes(taker, freed, left + own - less)


def _changes(c: Candidate, counts: Mapping[int, int], left: int) -> Iterator[Move]:
    """More for one trainer, as much as there is or one step, and less."""
    own = counts[c.trainer]
    for n in sorted({c.fitting(own + left), c.above(own), c.fitting(max(0, own - 1))}, reverse=True):
        if n != own and n <= own + left:
            yield Move({**counts, c.trainer: n}, c.trainer)


def _evictions(
    candidates: tuple[Candidate, ...], target: Allocation, counts: Mapping[int, int], left: int
) -> Iterator[Move]:
    """Everybody leaves a node but one, which may grow there."""
    known = {c.trainer: c for c in candidates}
    for node in sorted(nodes_of(gpu for own in target.values() for gpu in own)):
        there = {t: sum(node_of(gpu) == node for gpu in own) for t, own in target.items()}
        for c in candidates:
            less = {
                t: known[t].fitting(counts[t] - n)
                for t, n in there.items()
                if n and t != c.trainer and t in known
            }
            if less:
                freed = left + sum(counts[t] - n for t, n in less.items())
                for move in _changes(c, {**counts, **less}, freed):
                    yield Move(move.counts, c.trainer, node)
