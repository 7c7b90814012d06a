"""Which ranks have the training state when a group is entered, and from whom the others receive it."""

from __future__ import annotations

import time
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
    waited_s: float = 0.0  # how long the last rank with a state to come had stood still
    at: float = 0.0  # when all were there, by `time.monotonic()`


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a rank says of itself: the count of steps of its state (None: it has none), (count, elements) of
    an incomplete one, whether it knows that the run ends, and for how long it has stood still (s)."""

    state: int | None
    partial: tuple[int, int] = (0, 0)
    is_stopped: bool = False
    waited_s: float = 0.0


def call_roll(group: Group, said: Said) -> Roll:
    """Exchange what each rank has, and compare.

    Raises:
        GroupBroken: a member was lost meanwhile.
    """
    table = torch.zeros(group.size, 5, dtype=torch.int64)
    count = 0 if said.state is None else said.state + 1
    waited_us = int(said.waited_s * 1e6)
    mine = [count, said.partial[0] + 1, said.partial[1], int(said.is_stopped), waited_us]
    table[group.rank] = torch.tensor(mine)
    group.all_reduce(table)
    return replace(read_roll(table.tolist()), at=time.monotonic())


def read_roll(table: Sequence[Sequence[int]]) -> Roll:
    """The roll from one row per rank: count + 1 (0: no state), count + 1 of an incomplete state, elements in
    that, whether the run ends, and the microseconds for which it has stood still.

    A member waits for the others; what the last one did before it came is no part of the change of members.
    """
    is_stopped = any(row[3] for row in table)
    latest = max(row[0] for row in table)
    if latest == 0:
        return Roll(None, (), tuple(range(len(table))), 0, is_stopped)
    lacking = tuple(rank for rank, row in enumerate(table) if row[0] < latest)
    known = [table[rank][2] if table[rank][1] == latest else 0 for rank in lacking]
    working = tuple(rank for rank, row in enumerate(table) if row[0] == latest)
    waited_s = min(row[4] for row in table if row[0]) / 1e6
    return Roll(latest - 1, working, lacking, min(known, default=0), is_stopped, waited_s)


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
