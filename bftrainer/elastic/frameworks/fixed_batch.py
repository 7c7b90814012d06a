"""A global batch that is the same on any number of nodes: how it is cut, and which numbers of nodes can."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.messages.ranks import UNEVEN, UNEVEN_NOW

MOST_SIZES = 10_000
MOST_LISTED = 8
"""Numbers of nodes to list one by one, at most."""


class Cut(NamedTuple):
    """A rank's share of each step: `micro_batches` of `samples` each."""

    samples: int
    micro_batches: int


class Uneven(NamedTuple):
    """Samples that are computed at once: `few` of them on `fewest` ranks, and `many` on `most`."""

    few: int
    fewest: int
    many: int
    most: int
    cure: str

    @classmethod
    def of(cls, samples: Mapping[int, int]) -> Uneven | None:
        """Largest difference of the samples at once, by the number of ranks; None if there is none."""
        few, many = min(samples.values(), default=0), max(samples.values(), default=0)
        if few == many:
            return None
        ranks, common = {count: n for n, count in samples.items()}, math.gcd(*samples.values())
        cure = f"Say at_most={common}, so that all are of one size"
        if common == 1:
            cure = "Take a batch whose shares have a common divisor, and say at_most=..."
        return cls(few, ranks[few], many, ranks[many], cure)


def cut(total: int, size: int, at_most: int | None = None) -> Cut:
    """Cut a global batch of `total` samples evenly between `size` ranks, in micro-batches of `at_most`.

    Raises:
        RefusedError: it cannot be cut evenly.
    """
    share, rest = divmod(total, size)
    if rest or not share:
        raise RefusedError(UNEVEN_NOW.say(total=total, size=size))
    parts = next(n for n in range(math.ceil(share / (at_most or share)), share + 1) if not share % n)
    return Cut(share // parts, parts)


def at_once(total: int, sizes: Sequence[int], at_most: int | None = None) -> dict[int, int]:
    """The samples that a rank computes at once, by the number of ranks: of sizes that all cut `total`."""
    return {n: cut(total, n, at_most).samples for n in islice(sizes, MOST_SIZES)}


def check_even(total: int, sizes: Sequence[int]) -> None:
    """Check that every one of these numbers of nodes, which ascend, cuts a global batch evenly.

    Raises:
        RefusedError: one does not, with batches that all cut.
    """
    odd = next((n for n in islice(sizes, MOST_SIZES) if total % n), None)
    if odd is None:
        return
    all_cut = _cut_by_all(sizes, at_most=100 * total) if sizes[-1] <= total else 0
    other = f", or take {max(round(total / all_cut), 1) * all_cut}" if all_cut else ""
    raise RefusedError(UNEVEN.say(total=total, odd=odd, sizes=_told(sizes), other=other))


def _cut_by_all(sizes: Sequence[int], at_most: int) -> int:
    """The smallest batch that all of these numbers divide; 0 if it is larger than `at_most`."""
    batch = 1
    for n in sizes:
        batch = math.lcm(batch, n)
        if batch > at_most:
            return 0
    return batch


def _told(sizes: Sequence[int]) -> str:
    """Numbers of nodes, in few words."""
    steps = {b - a for a, b in pairwise(islice(sizes, MOST_SIZES))}
    if len(sizes) > 1 and steps == {1}:
        return f"{sizes[0]} to {sizes[-1]}"
    if len(sizes) <= MOST_LISTED:
        return ", ".join(map(str, sizes))
    if len(steps) == 1:
        return f"{sizes[0]}, {sizes[1]} and so on to {sizes[-1]}"
    return f"{', '.join(map(str, sizes[:MOST_LISTED]))} and others up to {sizes[-1]}"
