"""Figures of a step that has several micro-batches, by `self.log(..., on_step=True)`.

Lightning keeps that of the last micro-batch, which is a smaller part of the step on fewer nodes. Where a
version has no `_results`, which are Lightning's own, figures stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class StepFigures:
    """Makes a step's figures those of all its micro-batches: their mean, or as `reduce_fx` says."""

    def __init__(self) -> None:
        self._parts: dict[str, list[torch.Tensor]] = {}
        self._last: dict[str, torch.Tensor] = {}

    def after_part(self, trainer: Any, *, is_last: bool) -> None:
        """Must be called after each micro-batch, before others read the figures of the step."""
        loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
        for key, metric in (getattr(loop, "_results", None) or {}).items():
            value = getattr(metric, "_forward_cache", None)
            if not (metric.is_tensor and metric.meta.on_step and isinstance(value, torch.Tensor)):
                continue
            if value is not self._last.get(key):  # else it was not logged in this micro-batch
                self._parts.setdefault(key, []).append(value)
                self._last[key] = value
            if is_last and len(parts := self._parts.pop(key, [])) > 1:
                metric._forward_cache = self._last[key] = _combined(metric.meta)(torch.stack(parts))


def _combined(meta: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    if meta.is_max_reduction:
        return torch.amax
    if meta.is_min_reduction:
        return torch.amin
    return torch.sum if meta.is_sum_reduction else torch.mean
