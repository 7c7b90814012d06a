"""Views of the feed: rows of trainers, nodes and the daemon's state that its readers keep. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from bftrainer.api.listing import dumps
from bftrainer.daemon.answers.views.changes import FeedLine
from bftrainer.daemon.answers.views.pool import NodeStateView, StatusView, state_of, until_of
from bftrainer.model.machine import Node
from bftrainer.model.trainer import Trainer
from bftrainer.nodes.lifecycle import NodeRecord

STATUS = (
    *("state", "operation", "problems", "unit", "pool", "unused", "pilots", "headroom", "trainers"),
    "last_plan",
)
"""The keys of the status that the feed has; the others change all the time, or never."""


class NodeFacts(NamedTuple):
    """All that a node's row depends on. `why` is for everybody, `details` for admins; `trainer` to `role` are
    of the trainer that has it."""

    node: Node
    life: NodeRecord | None
    idle: bool
    why: str
    details: str
    trainer: int | None = None
    name: str = ""
    user: str = ""
    role: str = ""


class FeedNodeView(NodeStateView):
    """One node in the feed. `id`, `trainer` and `user` are those of the trainer that has it, null where the
    reader may not know."""

    gpus: int
    id: int | None
    trainer: str | None
    user: str | None
    role: str | None


def node_facts(
    node: Node, life: NodeRecord | None, holder: Trainer | None, idle: bool, why: str, details: str
) -> NodeFacts:
    """Return the facts of one node; `idle`: it is in the pool."""
    if idle:
        why = details = ""
    if holder is None:
        return NodeFacts(node, life, idle, why, details)
    own, role = holder.spec, "member" if node.name in holder.members else "joining"
    return NodeFacts(node, life, idle, why, details, holder.id, own.name, own.user, role)


def node_line(facts: NodeFacts) -> FeedLine:
    """Return a node's row: of other users' trainers only the role on the node shows."""
    if facts.trainer is None and facts.why == facts.details:
        text = dumps(_node(facts, facts.why, named=False)).encode()
        return FeedLine("", text, text, text)
    admin = dumps(_node(facts, facts.details, named=True)).encode()
    own = dumps(_node(facts, facts.why, named=True)).encode()
    return FeedLine(facts.user, admin, own, dumps(_node(facts, facts.why, named=False)).encode())


def _node(facts: NodeFacts, why: str, *, named: bool) -> FeedNodeView:
    node, life = facts.node, facts.life
    known = named and facts.trainer is not None
    return {
        "node": node.name,
        "state": state_of(node, idle=facts.idle, why=why).value,
        "why": why,
        "job": node.job,
        "until": until_of(node, life),
        "phase": life.phase.value if life else None,
        "since": life.since if life else None,
        "gpus": node.gpus,
        "id": facts.trainer if known else None,
        "trainer": facts.name if known else None,
        "user": facts.user if known else None,
        "role": facts.role or None,
    }


def status_of_feed(status: StatusView) -> dict[str, Any]:
    """Return what of the status the feed has."""
    return {key: value for key, value in status.items() if key in STATUS}
