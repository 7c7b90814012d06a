"""Which nodes join and leave the pool from one poll to the next. Pure.

A node joins only after it has been idle for `debounce_s`: between the end of one job and the start of the
next a node is idle for a moment (the paper drops these records too, section 2.1). It leaves at once. After a
failed poll the pool stays as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import NodeInfo, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The `nodes` that we may use, since when other nodes have been idle, and until when the scheduler
    expects nodes of ours to stay."""

    nodes: frozenset[str] = frozenset()
    idle_since: Mapping[str, float] = field(default_factory=dict)
    until: Mapping[str, float] = field(default_factory=dict)


def observe(
    pool: Pool,
    snapshot: Snapshot,
    debounce_s: float = 0.0,
    *,
    min_hole_s: float = 0.0,
    closed: bool = False,
    given_up: frozenset[str] = frozenset(),
) -> tuple[Pool, NodesChanged | None]:
    """Take one poll in. Returns the new pool and its changes as one event, None if there are none.

    A node does not join if its hole is expected to end within `min_hole_s`. No node joins a `closed` pool.
    Nodes of `given_up` leave, though they could stay, and do not join.
    """
    idle = snapshot.idle - given_up
    brief = {
        node.name
        for node in snapshot.nodes
        if node.until is not None and node.until - snapshot.time < min_hole_s
    }
    free = frozenset() if closed else idle - pool.nodes - brief
    since = {node: pool.idle_since.get(node, snapshot.time) for node in free}
    joined = frozenset(node for node, first in since.items() if snapshot.time - first >= debounce_s)
    left = pool.nodes - idle
    nodes = (pool.nodes & idle) | joined
    said = {node.name: node.until for node in snapshot.nodes if node.name in nodes}
    after = Pool(
        nodes=nodes,
        idle_since={node: first for node, first in since.items() if node not in joined},
        until={node: moment for node, moment in said.items() if moment is not None},
    )
    facts = {
        node: NodeInfo(until=moment)
        for node, moment in said.items()
        if moment != (None if node in joined else pool.until.get(node))
    }
    if not joined and not left and not facts:
        return after, None
    vacated = left & given_up
    return after, NodesChanged(
        time=snapshot.time, joined=joined, left=left, vacated=vacated, reason="poll", facts=facts
    )


def lose(
    pool: Pool, nodes: Collection[str], time: float, reason: str, *, vacated: bool = False
) -> tuple[Pool, NodesChanged | None]:
    """Take nodes out before a poll shows that they are gone. `vacated`: they are about to be gone, and their
    workers can still be told. They may join again like any other node."""
    gone = pool.nodes.intersection(nodes)
    if not gone:
        return pool, None
    after = replace(pool, nodes=pool.nodes - gone)
    return after, NodesChanged(time=time, left=gone, vacated=gone if vacated else frozenset(), reason=reason)
