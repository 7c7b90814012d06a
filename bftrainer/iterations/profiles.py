"""Times and memory of a worker's task that Jigsaw's authors measured on a Tesla V100 (tables 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bftrainer.iterations.model import IterationTask

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
BACKWARD_MS = (3.56, 8.35, 16.34, 23.02, 29.93, 36.58, 43.74, 49.92, 58.86, 70.24, 79.89)
PEAK_GB = (2.9, 3.1, 3.3, 3.5, 3.8, 4.1, 4.3, 4.6, 5.1, 5.7, 6.5)
"""Table 1: the backward pass and the peak memory of ResNet101 (batch 64), by the share of layers."""


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A row of table 2 (batch 128): forward and backward pass (ms), their memory (GB), the gradient (MB)."""

    name: str
    forward_ms: float
    forward_gb: float
    backward_ms: float
    backward_gb: float
    gradient_mb: float

    @property
    def model_gb(self) -> float:
        """The parameters, which are as large as the gradient (GB)."""
        return self.gradient_mb / 1000

    def task(self, share: float = 1.0) -> IterationTask:
        """One iteration that goes back through a share of the layers, from the last on.

        Table 1 says how a backward pass and the peak shrink with the share; all models are assumed to.
        """
        backward = np.interp(share, SHARES, BACKWARD_MS) / BACKWARD_MS[-1]
        peak = np.interp(share, SHARES, PEAK_GB) / PEAK_GB[-1]
        seconds = (self.forward_ms + self.backward_ms * float(backward)) / 1000
        return IterationTask(seconds, (self.forward_gb + self.backward_gb) * float(peak))

    def tasks(self, workers: int, *, partial: bool) -> tuple[IterationTask, ...]:
        """The tasks of `workers` workers; with `partial`, worker j of k goes back through j / k of layers."""
        return tuple(self.task(place / workers if partial else 1.0) for place in range(1, workers + 1))


MODELS = (
    MeasuredModel("ResNet18", 9.19, 0.05, 21.49, 2.46, 44),
    MeasuredModel("ResNet34", 16.11, 0.08, 36.69, 3.08, 85),
    MeasuredModel("ResNet50", 36.32, 0.09, 78.9, 7.33, 94),
    MeasuredModel("ResNet101", 60.51, 0.17, 135.14, 9.79, 170),
    MeasuredModel("ResNet152", 86.9, 0.23, 197.05, 12.81, 232),
    MeasuredModel("VGG19", 6.82, 0.08, 16.31, 2.02, 80),
    MeasuredModel("VGG16", 5.68, 0.06, 13.96, 1.97, 59),
    MeasuredModel("VGG11", 3.34, 0.04, 7.8, 1.83, 36),
    MeasuredModel("GoogleNet", 41.33, 0.05, 99.17, 5.96, 24),
)
"""Table 2."""
