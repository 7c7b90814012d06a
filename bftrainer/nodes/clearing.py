"""How long a node takes from the end of our pilot until others can have it: learnt from what polls show.

A site's epilog runs in this time, for example. Nodes that are expected to leave go so much earlier. A main
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

from bftrainer.model.machine import Pilot, Snapshot

log = logging.getLogger(__name__)

CLEARING = "completing"
"""What is said of a node in this time."""
REMEMBERED = 50
SHARE = 0.9
"""So many of those that are remembered took no longer than `lead_s`: one node that hangs counts little."""
MOST_S = 120.0
"""More is no epilog but a fault, which no lead would mend."""
LONG_S = 3.0
"""More than polls and Slurm itself take: it is told."""
JUDGED_BY = 5
"""So many nodes of other users say how long it usually takes."""
USUALLY = 2.0
"""A user's node that takes `LONG_S` and so many times as long as others' is kept by that user."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A node that is not clear long after those of other users would be."""

    node: str
    user: str
    since_s: float


@dataclass(slots=True)
class _Ended:
    """The last pilot of a node that is being cleared."""

    user: str
    since: float
    told: bool = False
    """Whether it has been told that its user keeps the node."""


class Clearing:
    """The nodes that are being cleared, and how long others took."""

    def __init__(self) -> None:
        self._ended: dict[str, _Ended] = {}  # by node
        self._took: deque[tuple[str, float]] = deque(maxlen=REMEMBERED)  # user, how long
        self._told = False

    @property
    def lead_s(self) -> float:
        """How long nearly all nodes took at most; 0 before the first."""
        took = sorted(took for _, took in self._took)
        return took[math.ceil(SHARE * len(took)) - 1] if took else 0.0

    @property
    def nodes(self) -> frozenset[str]:
        """Those whose last pilot was ours, and which are not clear yet."""
        return frozenset(self._ended)

    @property
    def users(self) -> dict[str, str]:
        """The same nodes -> the users of those pilots."""
        return {node: ended.user for node, ended in self._ended.items()}

    def begins(self, pilots: Iterable[Pilot], now: float) -> None:
        """These pilots are cancelled."""
        for pilot in pilots:
            self._ended[pilot.node] = _Ended(pilot.user, now)

    def observe(self, snapshot: Snapshot) -> list[Kept]:
        """Take a poll in: a node is clear when it has neither pilot nor anything to be cleared away. Returns
        the nodes of which it is known only now that a user keeps them."""
        if not self._ended:
            return []
        listed = {pilot.node for pilot in snapshot.pilots}
        shown = {node.name: node.why for node in snapshot.nodes}
        found: list[Kept] = []
        for node, ended in list(self._ended.items()):
            took = snapshot.time - ended.since
            cleared = node in shown and node not in listed and CLEARING not in shown[node].split("+")
            if not ended.told and self._is_kept(ended.user, took):
                ended.told = True
                found.append(Kept(node, ended.user, took))
            if took > MOST_S or node not in shown or cleared:
                del self._ended[node]
                if cleared and took <= MOST_S and not ended.told:
                    self._took.append((ended.user, took))
        if self.lead_s > LONG_S and not self._told:
            self._told = True
            log.warning(
                "nodes are seen to be free only %.0f s after a pilot ends, and main jobs may wait for that: "
                "an epilog, or a long poll_s? Nodes with a known end of their hole are given back so much "
                "earlier",
                self.lead_s,
            )
        return found

    def _is_kept(self, user: str, took_s: float) -> bool:
        others = [took for other, took in self._took if other != user]
        if not user or len(others) < JUDGED_BY:
            return False
        return took_s > max(LONG_S, USUALLY * statistics.median(others))
