"""The figures of a finished replay. Their keys are a contract with those that read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Slot
from bftrainer.model.policy import EngineSettings, Share
from bftrainer.model.trainer import RescaleCosts
from bftrainer.replay.loop import replay
from bftrainer.replay.tally import ByClass, Result, Tally, plus
from bftrainer.replay.trainers.simulated import HOUR_S, SimulatedTrainer
from bftrainer.replay.workload import Submission

Figures = dict[str, object]


def figures_of(
    result: Result, workload: Sequence[Submission], settings: EngineSettings, jct_first: int | None = None
) -> Figures:
    """The figures of a replay by their keys; docs/replay.md explains each.

    `mean_*_first_h` are over the first `jct_first` trainers of the queue, so that replays that complete
    more or fewer trainers can be compared; None unless all of these completed.
    """
    tally = result.tally
    return {
        **_yield(result, workload, settings),
        "events": tally.events,
        "completed": tally.completed,
        "rescales": tally.rescales,
        "preemptions": tally.preemptions,
        "decisions": len(tally.decisions),
        "decisions_preempted": int(tally.refuted.sum()),
        **_costs(result),
        "unproven_decisions": tally.unproven,
        "decided_by": dict(sorted(tally.decided_by.items())),
        "fallbacks": tally.fallbacks.total(),
        **_times(result, workload, jct_first),
        "decision_ms": _decision_ms(tally),
    }


def dedicated_samples(
    workload: Sequence[Submission], settings: EngineSettings, nodes: ByClass, begin: float, end: float
) -> float:
    """A_s: what these trainers would process in [begin, end) on N_eq dedicated `nodes` (section 4.1).

    The same queue runs under the optimal static allocation, without rescale costs, on the whole
    numbers of nodes below and above; in between it is interpolated, for each class of nodes by itself.
    """
    low = {name: math.floor(n) for name, n in nodes.items()}
    free = [
        replace(submission, spec=replace(submission.spec, costs=RescaleCosts())) for submission in workload
    ]
    exact = replace(settings, allocator="knapsack")

    def on(numbers: Mapping[str, int]) -> float:
        names = frozenset().union(*(_of_class(name, n, settings) for name, n in numbers.items()))
        changes = [NodesChanged(time=begin, joined=names)] if names else []
        return replay(changes, free, exact, begin, end).samples

    below = on(low)
    parts = {name: nodes[name] - n for name, n in low.items() if nodes[name] > n}
    return below + sum(part * (on({**low, name: low[name] + 1}) - below) for name, part in parts.items())


def _of_class(node_class: str, count: int, settings: EngineSettings) -> list[str]:
    """The names of `count` nodes of a class, or of GPUs, on as few nodes as hold them. A node may have more
    GPUs than `gpus_per_node` says."""
    own = sorted(settings.node_classes.get(node_class, ())) or [f"dedicated{i:06}" for i in range(count)]
    if settings.share is Share.NODE:
        return own[:count]
    each = max(settings.gpus_per_node, math.ceil(count / max(len(own), 1)))
    return [str(Slot(own[i // each], i % each)) for i in range(count)]


def _yield(result: Result, workload: Sequence[Submission], settings: EngineSettings) -> Figures:
    """Figures on the samples processed, absolute and relative.

    `efficiency_u` is U = A_e / A_s (section 4.1.2); `linear_efficiency` is E = A_e / (node-time * O(1)),
    each trainer measured by its own O(1).
    """
    node_s = result.tally.node_s
    equivalent = plus({}, result.tally.class_s, 1 / (result.end - result.begin))
    static = dedicated_samples(workload, settings, equivalent, result.begin, result.end)
    linear = sum(trainer.linear_node_s(result.end) for trainer in result.trainers.values())
    return {
        "efficiency_u": result.samples / static if static else 0.0,
        "linear_efficiency": linear / node_s if node_s else 0.0,
        "samples": result.samples,
        "node_hours": node_s / HOUR_S,
        "equivalent_nodes": sum(equivalent.values()),
    }


def _costs(result: Result) -> Figures:
    """Costs of rescales and preemptions, in samples (see `SimulatedTrainer`) and in node-time."""
    trainers = result.trainers.values()
    return {
        "rescale_samples": sum(trainer.rescaled_samples for trainer in trainers),
        "preemption_samples": sum(trainer.preempted_samples for trainer in trainers),
        "stall_node_hours": sum(trainer.stall_node_s for trainer in trainers) / HOUR_S,
        "init_node_hours": sum(trainer.init_node_s for trainer in trainers) / HOUR_S,
        "idle_node_hours": result.tally.idle_node_s / HOUR_S,
    }


def _times(result: Result, workload: Sequence[Submission], jct_first: int | None) -> Figures:
    """Runtimes (from first node to end) and turnarounds (from submission to end) of those that completed."""
    completed = {id_: trainer for id_, trainer in result.trainers.items() if trainer.completed}
    models: dict[str, list[float]] = {}
    for id_, trainer in completed.items():
        models.setdefault(workload[id_ - 1].model, []).append(trainer.runtime_h)
    first = [completed.get(id_) for id_ in range(1, min(jct_first or 0, len(workload)) + 1)]
    return {
        "runtime_h": _distribution([trainer.runtime_h for trainer in completed.values()]),
        "turnaround_h": _distribution([trainer.turnaround_h for trainer in completed.values()]),
        "runtime_by_model_h": {model: fmean(hours) for model, hours in sorted(models.items()) if model},
        "mean_runtime_first_h": _mean_of_all(first, lambda trainer: trainer.runtime_h),
        "mean_turnaround_first_h": _mean_of_all(first, lambda trainer: trainer.turnaround_h),
    }


def _decision_ms(tally: Tally) -> dict[str, float]:
    """Durations of decisions (ms of wall time)."""
    ordered = sorted(tally.decision_s)
    return {
        "p50": _quantile(ordered, 0.50) * 1e3,
        "p99": _quantile(ordered, 0.99) * 1e3,
        "max": (ordered[-1] if ordered else 0.0) * 1e3,
    }


def _mean_of_all(
    trainers: Sequence[SimulatedTrainer | None], value: Callable[[SimulatedTrainer], float]
) -> float | None:
    """The mean over all trainers; None if there are none, or if one of them is missing."""
    values = [value(trainer) for trainer in trainers if trainer is not None]
    return fmean(values) if values and len(values) == len(trainers) else None


def _distribution(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and percentiles; each None if there is no value."""
    ordered = sorted(values)
    found = {f"p{round(100 * q)}": _quantile(ordered, q) if values else None for q in (0.5, 0.9, 0.99)}
    return {"mean": fmean(values) if values else None, **found}


def _quantile(ordered: Sequence[float], q: float) -> float:
    """A quantile of sorted values, none of them interpolated; 0 if there is no value."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0
