"""Learns how long a node takes from the end of our pilot until others can have it, from what polls show.

A site's epilog runs in this time, for example. Nodes that are expected to leave go earlier by this. A main
job that could start at once still waits for it, as nobody knows of that job before.

A user can make it longer, as by job steps in a pilot that ignore what they are told: its nodes are then
cleared later than others'.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from bftrainer.model.machine import Pilot
from bftrainer.nodes.lifecycle import Effect, NodeCleared, Records
from bftrainer.nodes.pool import MOST_CLEARING_S

log = logging.getLogger(__name__)

REMEMBERED = 50
SHARE = 0.9
"""Share of the remembered times that are at most `lead_s`: one node that hangs counts little."""
LONG_S = 3.0
"""More than polls and Slurm itself take: it is told."""
JUDGED_BY = 5
"""Nodes of other users that say how long it usually takes."""
USUALLY = 2.0
"""A user's node that takes `LONG_S`, and longer than others' by this factor, is kept by that user."""


@dataclass(frozen=True, slots=True)
class KeptNode:
    """A node that is not clear long after those of other users would be."""

    node: str
    user: str
    since_s: float


class ClearingTimes:
    """Times that clearing a node took, by the user of its pilot."""

    def __init__(self) -> None:
        self._took: deque[tuple[str, float]] = deque(maxlen=REMEMBERED)  # user, how long
        self._kept: frozenset[Pilot] = frozenset()  # pilots whose users keep their nodes, as was told
        self._told = False

    @property
    def lead_s(self) -> float:
        """Return the most time (s) that nearly all nodes took; 0 before the first."""
        took = sorted(took for _, took in self._took)
        return took[math.ceil(SHARE * len(took)) - 1] if took else 0.0

    def observe(self, records: Records, effects: Iterable[Effect], now: float) -> list[KeptNode]:
        """Take in what a poll has shown to be clear, and what is not clear yet. Returns the nodes of which it
        is known only now that a user keeps them."""
        ends = [(end.pilot, now - end.at) for end in records.clearing.values()]
        cleared = [(effect.pilot, effect.took_s) for effect in effects if isinstance(effect, NodeCleared)]
        kept = [
            (pilot, took)
            for pilot, took in (*ends, *cleared)
            if pilot not in self._kept and self._is_kept(pilot.user, took)
        ]
        told = self._kept.union(pilot for pilot, _ in kept)
        self._took.extend((p.user, took) for p, took in cleared if took <= MOST_CLEARING_S and p not in told)
        self._kept = told.intersection(pilot for pilot, _ in ends)
        if self.lead_s > LONG_S and not self._told:
            self._told = True
            log.warning(
                "nodes are seen to be free only %.0f s after a pilot ends, and main jobs may wait for that: "
                "an epilog, or a long poll_s? Nodes with a known end of their hole are given back so much "
                "earlier",
                self.lead_s,
            )
        return [KeptNode(pilot.node, pilot.user, took) for pilot, took in kept]

    def _is_kept(self, user: str, took_s: float) -> bool:
        others = [took for other, took in self._took if other != user]
        if not user or len(others) < JUDGED_BY:
            return False
        return took_s > max(LONG_S, USUALLY * statistics.median(others))
