"""Views of nodes, of the last plan and of the daemon as a whole. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from bftrainer.daemon.answers.views.impact import HeadroomView
from bftrainer.daemon.answers.views.trainers import RunningView
from bftrainer.model.machine import Node, NodeState
from bftrainer.model.problem import Plan
from bftrainer.model.trainer import Trainer
from bftrainer.nodes.lifecycle import NodePhase, NodeRecord


class NodeStateView(TypedDict):
    """The fields of every view of a node. `why`: what keeps it out of the pool; `job`: the main job that has
    it, of several the last one; `until`: when that ends at the latest, by its time limit, or, without a job,
    when one is to take the node, or when its quarantine ends; `phase`: where it is in its life with us,
    `since` when (Unix seconds); None: it is the main scheduler's."""

    node: str
    state: str
    why: str
    job: str
    until: float | None
    phase: str | None
    since: float | None


class NodeView(NodeStateView):
    """One node. `trainer` is None, too, where the caller may not know whose it is. `gpus_had`: the most GPUs
    that it had since the daemon began."""

    pilot: str | None
    trainer: str | None
    role: str | None
    partitions: list[str]
    features: list[str]
    gres: str
    gpus: int
    gpus_had: int
    devices: str


class PlanView(TypedDict):
    """The last plan, without the allocation. `gap` None: no bound is known."""

    allocator: str
    status: str
    proven: bool
    objective: float
    gap: float | None
    solve_ms: float
    note: str
    fallback: str


class StatusView(TypedDict):
    """The daemon's status. `settings` and `bounds_hit` (in the last hour) are empty for callers that are no
    admins."""

    version: str
    pid: int
    up_s: float
    state: str
    operation: str
    problems: list[str]
    unit: str
    pool: int
    unused: int
    pilots: int
    headroom: HeadroomView
    trainers: dict[str, int]
    running: list[RunningView]
    running_left_out: int
    last_plan: PlanView | None
    bounds_hit: list[str]
    settings: dict[str, Any]


def node_view(
    info: Node,
    life: NodeRecord | None,
    *,
    idle: bool,
    why: str,
    pilot: str | None,
    devices: str = "",
    gpus_had: int = 0,
) -> NodeView:
    """A node that no trainer has; `life` is its record, if any."""
    return {
        "node": info.name,
        "state": state_of(info, idle=idle, why=why),
        "why": why,
        "job": info.job,
        "until": until_of(info, life),
        "phase": life.phase.value if life else None,
        "since": life.since if life else None,
        "pilot": pilot,
        "trainer": None,
        "role": None,
        "partitions": list(info.partitions),
        "features": list(info.features),
        "gres": info.gres,
        "gpus": info.gpus,
        "gpus_had": max(info.gpus, gpus_had),
        "devices": devices,
    }


def state_of(info: Node, *, idle: bool, why: str) -> NodeState:
    """Return `idle` in the pool and before a node joins; `unused` where nobody uses it, nor does it join."""
    if idle or info.state is not NodeState.IDLE:
        return NodeState.IDLE if idle else info.state
    return NodeState.UNUSED if why else NodeState.IDLE


def until_of(info: Node, life: NodeRecord | None) -> float | None:
    """Return until when a node is expected to be as it is now; None: it is not known."""
    if info.job:
        return info.ends
    return life.until if life is not None and life.phase is NodePhase.QUARANTINED else info.until


def with_trainers(node: NodeView, holders: Sequence[Trainer], may_see: Callable[[str], bool]) -> NodeView:
    """The view of a node with the trainer that has it, or those of one user that take turns there; `may_see`
    says of which users the caller may know."""
    if holders:
        roles = ["member" if node["node"] in holder.members else "joining" for holder in holders]
        node["role"] = ", ".join(dict.fromkeys(roles))
        seen = may_see(holders[0].spec.user)
        node["trainer"] = ", ".join(holder.spec.name for holder in holders) if seen else None
    return node


def plan_view(plan: Plan) -> PlanView:
    """A plan as the status shows it."""
    return {
        "allocator": plan.allocator,
        "status": plan.status.value,
        "proven": plan.proven,
        "objective": plan.objective,
        "gap": plan.gap if plan.bound < float("inf") else None,
        "solve_ms": plan.solve_s * 1e3,
        "note": plan.note,
        "fallback": plan.fallback,
    }
