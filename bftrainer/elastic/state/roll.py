"""Which ranks have the training state when a group is entered, and from whom the others receive it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from bftrainer.elastic.members.group import Group


@dataclass(frozen=True, slots=True)
class Roll:
    """Which ranks have the state when a group is entered."""

    latest: int | None  # the count of the latest state; None: no rank has a state
    working: tuple[int, ...]  # the ranks that have it
    lacking: tuple[int, ...]  # the ranks that lack it, or part of it
    offset: int  # elements of the bulk that all lacking ranks have already
    is_stopped: bool = False  # a rank knows that the run ends


def call_roll(group: Group, *, state: int | None, partial: tuple[int, int], is_stopped: bool = False) -> Roll:
    """Exchange what each rank has, and compare.

    `state` is the count of steps of this rank's state, None without one; `partial` is (count, elements) of an
    incomplete one.

    Raises:
        GroupBroken: a member was lost meanwhile.
    """
    table = torch.zeros(group.size, 4, dtype=torch.int64)
    mine = [0 if state is None else state + 1, partial[0] + 1, partial[1], int(is_stopped)]
    table[group.rank] = torch.tensor(mine)
    group.all_reduce(table)
    rows = table.tolist()
    return replace(read_roll(rows), is_stopped=any(row[3] for row in rows))


def read_roll(table: Sequence[Sequence[int]]) -> Roll:
    """The roll from one row per rank: steps + 1 (0: no state), steps + 1 of an incomplete state, elements in
    that."""
    latest = max(row[0] for row in table)
    if latest == 0:
        return Roll(None, (), tuple(range(len(table))), 0)
    lacking = tuple(rank for rank, row in enumerate(table) if row[0] < latest)
    known = [table[rank][2] if table[rank][1] == latest else 0 for rank in lacking]
    working = tuple(rank for rank, row in enumerate(table) if row[0] == latest)
    return Roll(latest - 1, working, lacking, min(known, default=0))


def links(working: Sequence[int], shadows: Sequence[int], rank: int) -> tuple[int | None, int | None]:
    """The rank from which `rank` receives, and the one to which it sends; None for neither.

    Every rank that has the state heads a chain of shadows.
    """
    source = sink = None
    for i, head in enumerate(working):
        for before, after in pairwise([head, *shadows[i :: len(working)]]):
            source = before if after == rank else source
            sink = after if before == rank else sink
    return source, sink
