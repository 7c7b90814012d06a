"""Views of trainers: lines of lists, details, what is estimated of each, and notes for its user. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import asdict
from itertools import islice
from statistics import median
from typing import Any, TypedDict

from bftrainer.daemon.answers.views.rescales import RescaleView
from bftrainer.engine.gpus.too_few import kept_off
from bftrainer.engine.state import State
from bftrainer.model.machine import Node
from bftrainer.model.reports import Progress, TrainerSummary, whole
from bftrainer.model.trainer import Observed, Points, Scalability, Trainer
from bftrainer.performance import adapting, explain, observe
from bftrainer.performance.estimate import (
    NOTHING,
    SharedObservations,
    costs_of,
    estimates,
    given_curves,
    typical_speed,
)

LISTED_METRICS = 50
"""Metrics of a trainer in lists and in the status, at most; `show` has all."""
NAMED = 3
"""Nodes named of each type of GPU, at most."""
BRIEF = 80
"""Characters of its latest warning in lists, at most."""


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
    None: neither does; `saved`: the step of the last checkpoint, None: not known; `warned`: the script's last
    warnings, in a list the beginning of the latest."""

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
    saved: int | None
    warned: list[str]
    submitted_at: float
    ended_at: float | None
    ends_in_s: OutlookView | None
    priority: float | None


class DetailsView(TrainerView):
    """All that is known of one trainer. `turns`: with whom it takes turns, in words; empty: it takes none."""

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
    turns: str
    generation: int
    failures: int
    pauses: list[RescaleView]


class ScalabilityView(TypedDict):
    """A trainer's estimated speed by nodes; `sizes` says of each size how sure it is. `goodput`: its progress
    by nodes, where its batch adapts and that is known; `counts` says, in words, by what goodput counts it."""

    mode: str
    may_ask_for: int
    points: list[list[float]]
    goodput: list[list[float]]
    counts: str
    sizes: list[dict[str, Any]]


class CostView(TypedDict):
    """One part of a rescale's cost, and where the figure comes from."""

    seconds: float
    error_s: float | None
    count: int
    source: str


class CostsView(TypedDict):
    """Estimated costs of rescaling a trainer, by direction and part."""

    up: dict[str, CostView]
    down: dict[str, CostView]


class RunningView(TypedDict):
    """A running trainer in the status."""

    name: str
    members: list[str]
    step: int
    samples: int
    work: int | None
    rate: float | None
    metrics: dict[str, float]
    note: str


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
        "saved": source.saved,
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
    """Return a running trainer for the status."""
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


def scalability_view(
    trainer: Trainer, others: list[Trainer], programs: SharedObservations
) -> ScalabilityView:
    """The estimated speed on each size, how sure that is, and the largest size that the next plan may use."""
    own, all_ = trainer.spec, (trainer, *others)
    learning = own.scalability is Scalability.AUTO
    typical = typical_speed(all_, programs)
    estimated = estimates(trainer, programs, typical)
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
        "goodput": [list(point) for point in estimated[None].goodput],
        "counts": _counts(trainer, estimated[None].goodput, programs),
        "sizes": rows,
    }


def _counts(trainer: Trainer, goodput: Points, programs: SharedObservations) -> str:
    """By what a trainer counts where nodes go by goodput, in words."""
    if goodput:
        shared = programs.get(trainer.spec.program, NOTHING)
        version = adapting.version_of(*(adapting.times_of(seen, None) for seen in (shared, trainer.observed)))
        own = ", by its own steps: others of its program take other times"
        return f"goodput{own if version.alone else ''}"
    if trainer.spec.scalability is Scalability.GIVEN:
        return "throughput: its curve is given"
    batch = trainer.batch
    if batch is None:
        adapts = any(name == "initial" for name, _ in trainer.spec.batch)
        return "throughput: its noise is not known yet" if adapts else "throughput: its batch is fixed"
    if batch.noise is None:
        return "throughput: the noise that it reports is no number of 0 or more"
    return "throughput: the times of its steps make no model"


def costs_view(trainer: Trainer, others: list[Trainer], programs: SharedObservations) -> CostsView:
    """Return the estimated costs of rescaling, and the measurements behind them."""
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


def gpu_note(trainer: Trainer, state: State, seen: Iterable[Node]) -> str:
    """Return whether a trainer's GPUs are of different types, and which nodes have too few for it; empty if
    neither. `seen`: the nodes of the last poll."""
    notes = (mixed(seen, trainer.nodes), kept_off(state.gpus, trainer.spec, state.pool))
    return "; ".join(note for note in notes if note)


def mixed(seen: Iterable[Node], nodes: Collection[str]) -> str:
    """Return which `nodes` have GPUs of which types, in words; empty if of one type, or not known."""
    on: defaultdict[str, list[str]] = defaultdict(list)
    for node in seen:
        if node.name in nodes:
            for kind in node.types:
                on[kind].append(node.name)
    if len(on) < 2:
        return ""
    named = "; ".join(f"{kind} on {_named(sorted(names))}" for kind, names in sorted(on.items()))
    return f"its workers have GPUs of different types ({named}): an admin can keep them apart (node_classes)"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
