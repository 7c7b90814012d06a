"""How long a node takes from the end of our pilot until others can have it: learnt from what polls show.

A site's epilog runs in this time, for example. Nodes that are expected to leave go so much earlier. A main
job that could start at once still waits for it, as nobody knows of that job before.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable

from bftrainer.model.machine import Snapshot

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


class Clearing:
    """The nodes that are being cleared, and how long others took."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._took: deque[float] = deque(maxlen=REMEMBERED)
        self._told = False

    @property
    def lead_s(self) -> float:
        """How long nearly all nodes took at most; 0 before the first."""
        took = sorted(self._took)
        return took[math.ceil(SHARE * len(took)) - 1] if took else 0.0

    def begins(self, nodes: Iterable[str], now: float) -> None:
        """The pilots of these nodes are cancelled."""
        self._since.update(dict.fromkeys(nodes, now))

    def observe(self, snapshot: Snapshot) -> None:
        """Take a poll in: a node is clear when it has neither pilot nor anything to be cleared away."""
        if not self._since:
            return
        listed = {pilot.node for pilot in snapshot.pilots}
        shown = {node.name: node.why for node in snapshot.nodes}
        for node, since in list(self._since.items()):
            took = snapshot.time - since
            if took > MOST_S or node not in shown:
                del self._since[node]
            elif node not in listed and CLEARING not in shown[node].split("+"):
                del self._since[node]
                self._took.append(took)
        if self.lead_s > LONG_S and not self._told:
            self._told = True
            log.warning(
                "nodes take %.0f s to be cleared after a pilot ends, and main jobs wait for that: "
                "is there an Epilog? Nodes with a known end of their hole are given back so much earlier",
                self.lead_s,
            )
