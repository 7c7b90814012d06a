"""When trainers that wait will probably get nodes. Pure.

What is to come is taken to be simple: trainers that hold nodes keep them until they end, and the nodes that
get free go to those that wait, in the order of the queue. Plans may give some earlier; nodes come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nsmallest
from itertools import chain

from bftrainer.engine.queueing.queue import rank
from bftrainer.engine.state import State
from bftrainer.model.trainer import Trainer

MOST = 1000
"""Waiting trainers that have their turn told, the first ones."""


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """A trainer that waits: it takes `most` nodes or fewer, `least` at least, and keeps them for `lasts_s` of
    how many it gets; None: nobody knows."""

    trainer: int
    least: int
    most: int
    lasts_s: Callable[[int], float | None]


def turns(
    free: int, places: int | None, holders: Iterable[tuple[int, float | None]], queue: Iterable[WaitingTurn]
) -> dict[int, float]:
    """Return trainer -> seconds until it gets nodes, for those where that can be told.

    `holders` have nodes and the seconds they hold them for; None: nobody knows. `places` is how many trainers
    may hold nodes at once; None: any number.
    """
    held = list(holders)
    total, at_work, now = free + sum(n for n, _ in held), len(held), 0.0
    ends = [(ends_s, n) for n, ends_s in held if ends_s is not None]
    heapify(ends)
    found: dict[int, float] = {}
    for turn in queue:
        if turn.least > total:
            continue  # it waits for more nodes than there are now; others do not wait for it
        while free < turn.least or (places is not None and at_work >= places):
            if not ends:
                return found
            now, freed = heappop(ends)
            free, at_work = free + freed, at_work - 1
        found[turn.trainer] = now
        taken = min(free, turn.most)
        free, at_work = free - taken, at_work + 1
        lasts_s = turn.lasts_s(taken)
        if lasts_s is not None:
            heappush(ends, (now + lasts_s, taken))
    return found


def usual_share(state: State) -> int:
    """Return how many nodes a trainer gets if all that may hold nodes at once have as many."""
    holding = sum(bool(t.nodes) for t in state.active.values())
    limit = state.settings.max_parallel
    return max(
        1, len(state.pool) // max(1, holding if limit is None else min(limit, holding + len(state.waiting)))
    )


def first_in_line(state: State) -> list[Trainer]:
    """The first of those that wait, in the order of the queue, without those that get no nodes for now."""
    without = (t for t in state.active.values() if not t.nodes)
    able = (t for t in chain(without, state.waiting) if not state.set_aside(t))
    return nsmallest(MOST, able, key=rank)
