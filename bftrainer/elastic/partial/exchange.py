"""The exchange of gradients of which each worker has the last part only: the rest does not travel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bftrainer.elastic.members.group import Group


def cuts(length: int, ranks: int) -> list[int]:
    """The ends of equal parts of `length` numbers, one for each rank, which it sums; the first is 0."""
    each = -(-length // ranks)
    return [min(i * each, length) for i in range(ranks + 1)]


def overlap(prefix: int, start: int, stop: int) -> int:
    """Count of the numbers [start, stop) among the first `prefix`."""
    return max(0, min(prefix, stop) - start)


def sent(lengths: Sequence[int], total: int) -> float:
    """Numbers that a rank sends on average, where rank i has the first `lengths[i]` of `total`."""
    ranks, ends = len(lengths), cuts(total, len(lengths))
    first = sum(
        overlap(mine, ends[to], ends[to + 1])
        for i, mine in enumerate(lengths)
        for to in range(ranks)
        if to != i
    )
    return (first + (ranks - 1) * total) / ranks


def sum_prefixes(group: Group, own: torch.Tensor, lengths: Sequence[int], total: int) -> torch.Tensor:
    """The sum over all ranks of vectors of which rank i has the first `lengths[i]` of `total` numbers; `own`
    are this rank's. Every rank sums a part of it, in the order of ranks, and sends that to all: so all have
    the same bits.

    Raises:
        GroupBroken: a member was lost.
    """
    ends = cuts(total, group.size)
    mine = ends[group.rank], ends[group.rank + 1]
    outgoing = [overlap(len(own), ends[to], ends[to + 1]) for to in range(group.size)]
    coming = [overlap(length, *mine) for length in lengths]
    pieces = own.new_empty(sum(coming))
    group.all_to_all(pieces, own, coming, outgoing)
    part = own.new_zeros(mine[1] - mine[0])
    for piece in torch.split(pieces, list(coming)):
        part[: len(piece)] += piece
    whole = own.new_empty(total)
    sizes = [ends[i + 1] - ends[i] for i in range(group.size)]
    group.all_to_all(whole, part.repeat(group.size), sizes, [len(part)] * group.size)
    return whole
