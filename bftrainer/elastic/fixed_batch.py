"""A global batch that is the same on any number of nodes: how it is cut, and which numbers of nodes can."""

from __future__ import annotations

import math
from typing import NamedTuple

MOST_SIZES = 10_000


class Cut(NamedTuple):
    """A rank's share of each step: `micro_batches` of `samples` each."""

    samples: int
    micro_batches: int


def cut(total: int, size: int, at_most: int | None = None) -> Cut:
    """Cut a global batch of `total` samples evenly between `size` ranks, in micro-batches of `at_most`.

    Raises:
        ValueError: it cannot be cut evenly.
    """
    share, rest = divmod(total, size)
    if rest or not share:
        raise ValueError(f"a global batch of {total} cannot be shared out evenly between {size} nodes")
    parts = next(n for n in range(math.ceil(share / (at_most or share)), share + 1) if not share % n)
    return Cut(share // parts, parts)


def require_even(total: int, nodes: tuple[int, int]) -> None:
    """Check that every number of nodes from the fewest to the most cuts a global batch evenly.

    Raises:
        ValueError: one does not, with batches that all cut.
    """
    fewest, most = nodes
    odd = [n for n in range(fewest, min(most, fewest + MOST_SIZES) + 1) if total % n]
    if not odd:
        return
    all_cut = math.lcm(*range(fewest, most + 1)) if most <= total else 0
    near = round(total / all_cut) * all_cut if all_cut else 0
    remedy = f"take {max(near, all_cut)}, or " if 0 < all_cut <= 100 * total else ""
    raise ValueError(
        f"a global batch of {total} cannot be shared out evenly between {odd[0]} nodes, and the spec allows "
        f"{fewest} to {most}: {remedy}set nodes so that every number of them divides the batch"
    )
