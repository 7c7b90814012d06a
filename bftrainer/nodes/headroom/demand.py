"""Learns how many nodes main jobs ask for at once, for `headroom: auto`. Pure.

A node that was left is missing until another one has been given back. So what counts is how much is asked for
within that time: at the arrivals of nearly all small jobs it was no more than what is left.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bftrainer.model.main_jobs import MainStart
from bftrainer.nodes.headroom.headroom import Kind

DAY_S = 86_400.0
"""Older arrivals count no more."""
REMEMBERED = 500
"""Arrivals that are remembered of each kind of node."""
LEAST = 10
"""With fewer arrivals in a day nothing is left: nobody would notice."""
SERVED = 0.9
"""Share of the small jobs that find all that they ask for."""
MOST_KINDS = 100
"""Kinds of nodes that are told apart, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job's request at a `time`: whole `nodes`, or a `part` of some, as of cores, counted in nodes."""

    time: float
    nodes: int = 0
    part: float = 0.0


def need(arrivals: Sequence[Arrival], within_s: float, most: int, spare: float = 0.0) -> int:
    """Return the idle nodes that suffice for `SERVED` of the small jobs: those for at most `most` nodes.

    `arrivals` are in the order of their times. A job finds what those before it have left within `within_s`.
    Of what is asked for in parts of nodes, `spare` is free on nodes that main jobs use in part.
    """
    small = [one for one in arrivals if one.nodes + one.part <= most]
    if len(small) < LEAST or most < 1:
        return 0
    times = [one.time for one in small]
    asked = []
    for i, one in enumerate(small):
        recent = small[bisect_right(times, one.time - within_s, hi=i) : i + 1]
        parts = sum(other.part for other in recent)
        asked.append(sum(other.nodes for other in recent) + max(0, math.ceil(parts - spare - 1e-9)))
    asked.sort()
    return min(most, asked[math.ceil(SERVED * len(asked)) - 1])


class Demand:
    """The arrivals of the last day, by kind of node."""

    def __init__(self) -> None:
        self._arrivals: defaultdict[Kind, deque[Arrival]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        self._known: dict[Kind, tuple[tuple[object, ...], int]] = {}  # what was asked last, and the answer

    def learn(
        self,
        start: MainStart,
        kinds: Mapping[str, Kind],
        cores: Mapping[str, int],
        each: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Take in a job that has started; `kinds` and `cores` are those of all nodes. One that waited for
        other jobs first would have found nothing, whatever is left. Where single GPUs are counted, a node has
        `each` GPUs, and `cores` are those of one."""
        on = [node for node in start.on if node in kinds]
        if not start.fresh or not on:
            return
        kind = kinds[min(on)]
        if kind not in self._arrivals and len(self._arrivals) >= MOST_KINDS:
            return
        at = start.time - start.wait_s
        whole = max((cores.get(node, 0) for node in on), default=0)
        if start.cores and whole:
            arrival = Arrival(time=at, part=start.cores / whole)
        else:
            arrival = Arrival(time=at, nodes=sum(each.get(node, 1) for node in on))
        self._arrivals[kind].append(arrival)

    def needs(
        self, usable: Mapping[Kind, int], spare: Mapping[Kind, float], within_s: float, now: float
    ) -> dict[Kind, int]:
        """Return the number of nodes of each kind that are to be left, at most those `usable`."""
        found = {}
        for kind, most in usable.items():
            arrivals = self._arrivals.get(kind, ())
            while arrivals and now - arrivals[0].time > DAY_S:
                arrivals.popleft()
            last = arrivals[-1] if arrivals else None
            asked = (last, len(arrivals), most, math.floor(spare.get(kind, 0.0)), math.ceil(within_s))
            known = self._known.get(kind)
            if known is None or known[0] != asked:
                in_order = sorted(arrivals, key=lambda one: one.time)
                known = asked, need(in_order, asked[4], most, asked[3])
                self._known[kind] = known
            found[kind] = known[1]
        return found
