"""What the daemon answers, as typed JSON objects, and how they follow from what the daemon knows. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from statistics import median
from typing import Any, TypedDict

from bftrainer.daemon.impact_views import HeadroomView
from bftrainer.daemon.rescales import RescaleView
from bftrainer.model.machine import Node
from bftrainer.model.problem import Plan
from bftrainer.model.reports import Progress, TrainerSummary, whole
from bftrainer.model.trainer import Observed, Scalability, Trainer
from bftrainer.performance import explain, observe
from bftrainer.performance.estimate import (
    SharedObservations,
    costs_of,
    estimates_of,
    given_curves,
    typical_speed,
)

LISTED_METRICS = 50
"""So many metrics of a trainer are in lists and in the status; `show` has all."""
BRIEF = 80
"""So many characters of its latest warning are in lists."""


class EarlierView(TypedDict):
    """A trainer that was there before one that is submitted; `goes_on`: whether that has its checkpoints."""

    id: int
    name: str
    status: str
    step: int
    checkpoint_dir: str
    goes_on: bool


class SubmittedView(TypedDict):
    """A trainer that was accepted. `note` says why it waits; empty if there are nodes for it.

    `earlier` is the trainer that it goes on from, or the last one of its name; None: there is none.
    """

    id: int
    name: str
    note: str
    earlier: EarlierView | None


class OutlookView(TypedDict):
    """Seconds until a trainer's work is done, see `performance.outlook`; None where that is not known.

    `waits`: for how long it will probably wait for nodes, part of `likely`. `unknown`: why that is None.
    """

    early: float | None
    likely: float | None
    late: float | None
    waits: float | None
    unknown: str


class TrainerView(TypedDict):
    """A trainer's line in a list. `unit`: what is shared out, "node" or "GPU", which `nodes` and `members`
    are then, and all counts of nodes. `remedy`: what would make it run, while it waits; `note`: what its user
    should know of it now, with what to do; `work`: the samples of the whole training, as spec or script say;
    None: neither does; `warned`: the script's last warnings, in a list the beginning of the latest."""

    id: int
    name: str
    user: str
    status: str
    reason: str
    remedy: str
    note: str
    unit: str
    nodes: list[str]
    members: list[str]
    workers: dict[str, str]
    step: int
    epoch: int
    samples: int
    work: int | None
    rate: float | None
    metrics: dict[str, float]
    warned: list[str]
    submitted_at: float
    ended_at: float | None
    ends_in_s: OutlookView | None
    priority: float | None


class DetailsView(TrainerView):
    """All that is known of one trainer."""

    command: list[str]
    n_min: int
    n_max: int
    sizes: list[int]
    multiple_of: int
    weight: float
    workdir: str
    log_dir: str
    checkpoint_dir: str
    scalability: ScalabilityView
    costs: CostsView
    generation: int
    failures: int
    pauses: list[RescaleView]


class ScalabilityView(TypedDict):
    """A trainer's estimated speed by nodes; `sizes` says of each size how sure it is."""

    mode: str
    may_ask_for: int
    points: list[list[float]]
    sizes: list[dict[str, Any]]


class CostView(TypedDict):
    """One part of a rescale's cost, and where the figure comes from."""

    seconds: float
    error_s: float | None
    count: int
    source: str


class CostsView(TypedDict):
    """What rescaling a trainer is estimated to cost, by direction and part."""

    up: dict[str, CostView]
    down: dict[str, CostView]


class NodeView(TypedDict):
    """One node. `trainer` is None, too, where the caller may not know whose it is. `gpus_had`: the most GPUs
    that it had since the daemon began."""

    node: str
    state: str
    why: str
    until: float | None
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


class RunningView(TypedDict):
    """What the status says of a trainer that runs."""

    name: str
    members: list[str]
    step: int
    samples: int
    work: int | None
    rate: float | None
    metrics: dict[str, float]
    note: str


class StatusView(TypedDict):
    """How the daemon is. `settings` and `bounds_hit` (in the last hour) are empty for callers that are no
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


def trainer_view(
    stored: TrainerSummary,
    live: Trainer | None,
    latest: Progress | None,
    workers: dict[str, str],
    unit: str,
) -> TrainerView:
    """A trainer's line; what is newer in memory (`live`, `latest`) than in the store wins."""
    source = latest or stored
    return {
        "id": stored.id,
        "name": stored.name,
        "user": stored.user,
        "status": live.status.value if live else stored.status.value,
        "reason": stored.reason,
        "remedy": "",
        "note": "",
        "unit": unit,
        "nodes": sorted(live.nodes) if live else [],
        "members": list(live.members) if live else [],
        "workers": workers,
        "step": source.step,
        "epoch": source.epoch,
        "samples": source.samples,
        "work": whole(stored.work, source.of, source.samples),
        "rate": source.rate if live is not None and live.members else None,
        "metrics": dict(source.metrics),
        "warned": list(source.warned),
        "submitted_at": stored.submitted_at,
        "ended_at": stored.ended_at,
        "ends_in_s": None,
        "priority": None,
    }


def listed_view(trainer: TrainerView) -> TrainerView:
    """A trainer as one line among many: with its first metrics, and its latest warning in brief."""
    warned = [text[:BRIEF] for text in trainer["warned"][-1:]]
    return {**trainer, "metrics": _first(trainer["metrics"]), "warned": warned}


def _first(metrics: dict[str, float]) -> dict[str, float]:
    return dict(islice(metrics.items(), LISTED_METRICS))


def running_view(trainer: TrainerView) -> RunningView:
    """What the status says of a trainer that runs."""
    return {
        "name": trainer["name"],
        "members": trainer["members"],
        "step": trainer["step"],
        "samples": trainer["samples"],
        "work": trainer["work"],
        "rate": trainer["rate"],
        "metrics": _first(trainer["metrics"]),
        "note": trainer["note"],
    }


def node_view(
    info: Node, *, idle: bool, why: str, pilot: str | None, devices: str = "", gpus_had: int = 0
) -> NodeView:
    """A node that no trainer has."""
    return {
        "node": info.name,
        "state": "idle" if idle else "busy",
        "why": why,
        "until": info.until,
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


def with_trainer(node: NodeView, holder: Trainer | None, may_see: Callable[[str], bool]) -> NodeView:
    """The view of a node with the trainer that has it; `may_see` says of which users the caller may know."""
    if holder is not None:
        node["role"] = "member" if node["node"] in holder.members else "joining"
        node["trainer"] = holder.spec.name if may_see(holder.spec.user) else None
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


def scalability_view(
    trainer: Trainer, others: list[Trainer], programs: SharedObservations
) -> ScalabilityView:
    """The estimated speed on each size, how sure that is, and the largest size that the next plan may use."""
    own, all_ = trainer.spec, (trainer, *others)
    estimated = estimates_of(all_, programs)[0]
    learning = own.scalability is Scalability.AUTO
    typical = typical_speed(all_, programs)
    rows = []
    for name, points in given_curves(own).items():
        seen = observe.sizes(trainer.observed, name) if learning else ()
        if points or name is None:
            found = explain.size_estimates(seen, points, own.n_min, own.n_max, typical, own.sizes)
            rows += [{"node_class": name, **asdict(estimate)} for estimate in found]
    return {
        "mode": own.scalability.value,
        "may_ask_for": own.fitting(max(estimate.n_max for estimate in estimated.values())),
        "points": [list(point) for point in estimated[None].points],
        "sizes": rows,
    }


def costs_view(trainer: Trainer, others: list[Trainer], programs: SharedObservations) -> CostsView:
    """What rescaling is estimated to cost, and the measurements behind it."""
    own, seen = trainer.spec, trainer.observed
    estimated = costs_of((trainer, *others), programs)[0]
    otherwise = "given" if own.costs else "assumed"
    learning = own.costs is None or own.scalability is Scalability.AUTO

    def cost(value: float, observed: Observed) -> CostView:
        measured = learning and observed.count > 0
        return {
            "seconds": value,
            "error_s": observe.error(observed) * median(observed.recent) if measured else None,
            "count": observed.count,
            "source": "measured" if measured else otherwise,
        }

    return {
        "up": {
            "stall": cost(estimated.up.stall_s, seen.up_stall_s),
            "init": cost(estimated.up.init_s, seen.up_init_s),
        },
        "down": {"stall": cost(estimated.down.stall_s, seen.down_stall_s)},
    }
