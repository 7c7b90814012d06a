"""The execution model: a directed acyclic graph of tasks whose latencies are drawn (RubberBand, section 4.2).

A stage is SCALE, if nodes are missing, then one INIT for each new node, then one TRAIN for each trial, then
SYNC. Where fewer trials run at a time than there are, a trial's TRAIN follows that of another. Tasks of one
kind that stand beside each other make one layer, so that many draws of all of them are computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bftrainer.search.plan.profile import Floats
from bftrainer.search.plan.step import Step


class Task(StrEnum):
    """What a node of the graph does."""

    SCALE = "scale"
    """The provider, or the scheduler, finds nodes."""
    INIT = "init"
    """A new node is made ready."""
    TRAIN = "train"
    """A trial trains for the iterations of its stage."""
    SYNC = "sync"
    """All trials are compared: the end of a stage."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Tasks beside each other. Each follows all of the layer before; if `own`, only that in its place."""

    kind: Task
    width: int
    own: bool = False


def growth(new: int) -> tuple[Layer, ...]:
    """The tasks by which the cluster gets so many nodes more."""
    return (Layer(Task.SCALE, 1), Layer(Task.INIT, new)) if new else ()


def training(step: Step) -> tuple[Layer, ...]:
    """The tasks of a stage on nodes that are there."""
    trials, parallel = step.stage.trials, step.parallel
    waves = [
        Layer(Task.TRAIN, min(parallel, trials - first), own=first > 0)
        for first in range(0, trials, parallel)
    ]
    return (*waves, Layer(Task.SYNC, 1))


def duration(layers: Sequence[Layer], latencies: Sequence[Floats]) -> Floats:
    """When the last task ends, for each draw: the critical path (algorithm 1).

    `latencies[i]` holds those of layer i: a row for each draw, a column for each task.
    """
    ends: Floats = np.zeros((latencies[0].shape[0] if latencies else 1, 1))
    for layer, latency in zip(layers, latencies, strict=True):
        if layer.own:
            ends = ends.copy()
            ends[:, : layer.width] += latency
        else:
            ends = ends.max(axis=1, keepdims=True) + latency
    longest: Floats = ends.max(axis=1)
    return longest
