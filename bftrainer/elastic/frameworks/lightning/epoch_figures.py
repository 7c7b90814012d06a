"""Figures that a Lightning module has logged in this epoch, by `self.log(..., on_epoch=True)`.

Lightning keeps it in memory alone, so that its means would count from the last start of a process. There is
no public way to it: `_results` are Lightning's own, and where a version of it has none, nothing is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from bftrainer.elastic.attach.collectives import exchanged

Kept = dict[str, list[Any]]
"""For each figure its value (of a mean: the sum), the samples in it, and how values are combined."""
_COMBINED: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": lambda one, other: one + other,
    "max": max,
    "min": min,
}


def collect(trainer: Any) -> Kept:
    """The figures over all ranks. All of them must call it."""
    mine = {
        key: [float(metric.value), float(getattr(metric, "cumulated_batch_size", 0.0)), _kind(metric)]
        for key, metric in _logged(trainer).items()
    }
    first: Kept
    first, *others = exchanged(mine)
    for theirs in others:
        for key, (said, samples, kind) in theirs.items():
            value, count = float(said), float(samples)
            if key in first:
                first[key] = [_COMBINED[kind](first[key][0], value), first[key][1] + count, kind]
            else:
                first[key] = [value, count, kind]
    return first


def add(trainer: Any, before: Kept, size: int) -> Kept:
    """Add to this rank's figures its part of what `collect` has found, which `size` ranks share.

    Returns:
        The figures that have not been logged yet: they wait.
    """
    there = _logged(trainer)
    for key, (value, count, kind) in before.items():
        if key not in there:
            continue
        metric = there[key]
        ranks = 1 if metric.meta.sync.rank_zero_only else size
        part = metric.value.new_tensor(value / ranks if kind == "sum" else value)
        metric.value = _COMBINED[kind](metric.value, part)
        if metric.meta.is_mean_reduction:
            metric.cumulated_batch_size = metric.cumulated_batch_size + count / ranks
    return {key: kept for key, kept in before.items() if key not in there}


def lost(trainer: Any) -> list[str]:
    """The names of those that `collect` leaves out: metrics of torchmetrics, which count by themselves."""
    return sorted({metric.meta.name for metric in _of_epoch(trainer).values() if not metric.is_tensor})


def by_hand(trainer: Any, module: Any, *, alone: bool) -> list[str]:
    """The names of metrics of torchmetrics that have counted, and that nothing is logged of: their counts are
    not in checkpoints, or those of rank 0 alone. `alone`: there is never another rank."""
    kind = getattr(sys.modules.get("torchmetrics"), "Metric", ())
    logged = {id(metric.value) for metric in _of_epoch(trainer).values() if not metric.is_tensor}
    return [
        name
        for name, each in module.named_modules()
        if isinstance(each, kind)
        and each.update_called
        and id(each) not in logged
        and not (alone and all(each._persistent.values()))
    ]


def _logged(trainer: Any) -> dict[str, Any]:
    """Lightning's objects for the figures that are numbers."""
    return {key: metric for key, metric in _of_epoch(trainer).items() if metric.is_tensor}


def _of_epoch(trainer: Any) -> dict[str, Any]:
    """Lightning's objects for all that counts in the epoch under way."""
    loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
    found = getattr(loop, "_results", None) or {}
    return {key: metric for key, metric in found.items() if metric.meta.on_epoch and not metric.has_reset}


def _kind(metric: Any) -> str:
    if metric.meta.is_max_reduction:
        return "max"
    return "min" if metric.meta.is_min_reduction else "sum"
