"""Counts the GPUs of nodes and of pilots, and tells where that changes what may run there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bftrainer.model.events import GpusChanged
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Node

REMEMBERED_S = 600.0
"""Seconds that an agent's word on its pilot's GPUs counts after the pilot's end: else the same trainer would
get the node again at once. Later it may have others: main jobs leave others free, a GPU is mended."""
SAID_EVERY_S = 10.0
"""Seconds, at least, between two plans for what a node's agents say of its GPUs; else the next poll tells."""
NAMED = 8
"""Nodes named in a reason, at most."""


@dataclass(slots=True)
class GpusKnown:
    """Merges what polls and agents say of nodes' GPUs; news becomes an event for the engine.

    `most` has the most GPUs that a poll has shown on each node.
    """

    nodes: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    _said: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)  # (user, node): count, when
    _planned: dict[str, float] = field(default_factory=dict)  # node -> when an agent's word led to an event
    _told: Mapping[tuple[str, str], int] = field(default_factory=dict)  # of that, what the engine knows

    def poll(self, seen: Iterable[Node], held: Mapping[str, str], now: float) -> GpusChanged | None:
        """Take a poll in; `held` has the users of the pilots by node. What has changed, None if nothing.

        The reason names nodes that had another number before; that a node is new is no change of it.
        """
        totals: Counter[str] = Counter()
        for node in seen:  # single GPUs count for their node
            totals[node_of(node.name)] += node.gpus
        changed = {name: count for name, count in totals.items() if count != self.nodes.get(name, 0)}
        others = [
            f"{name} has {count:,}, and had {self.nodes[name]:,}"
            for name, count in sorted(changed.items())
            if name in self.nodes
        ]
        self.nodes.update(totals)
        for name, count in changed.items():
            self.most[name] = max(count, self.most.get(name, 0))
        for (user, name), (count, since) in tuple(self._said.items()):
            if held.get(name) == user:
                self._said[user, name] = count, now
            elif now - since >= REMEMBERED_S:
                del self._said[user, name]
        more = f" and {len(others) - NAMED:,} more nodes" if len(others) > NAMED else ""
        reason = f"other numbers of GPUs than before: {'; '.join(others[:NAMED])}{more}" if others else ""
        return self._change(now, changed, reason)

    def says(self, node: str, user: str, count: int, now: float, reason: str = "") -> GpusChanged | None:
        """A user's agent says how many GPUs its pilot has; what that changes, None if nothing."""
        self._said[user, node] = count, now
        if now - self._planned.get(node, -SAID_EVERY_S) < SAID_EVERY_S:
            return None
        if change := self._change(now, {}, reason):
            self._planned[node] = now
        return change

    def _change(self, now: float, changed: Mapping[str, int], reason: str) -> GpusChanged | None:
        """Return the news for the engine: only that, as there may be thousands of pilots."""
        own = {key: count for key, (count, _) in self._said.items() if count != self.nodes.get(key[1], 0)}
        if not changed and own == self._told:
            return None
        told: dict[str, dict[str, int | None]] = {}
        for user, node in sorted(own.keys() | self._told.keys()):
            if own.get((user, node)) != self._told.get((user, node)):
                told.setdefault(user, {})[node] = own.get((user, node))
        self._told = own
        return GpusChanged(time=now, nodes=changed, told=told, reason=reason)
