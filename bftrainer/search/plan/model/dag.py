"""The execution model: a directed acyclic graph of tasks whose latencies are drawn (RubberBand, section 4.2).

A stage is SCALE, if nodes are missing, then one INIT for each new node, then one TRAIN for each trial, then
SYNC. Where fewer trials run at a time than there are, a trial's TRAIN follows that which ends first: which
one this is differs from draw to draw. Other tasks of one kind that stand beside each other make one layer, so
that many draws of all of them are computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bftrainer.search.plan.model.profile import Floats


class DagTask(StrEnum):
    """Kinds of tasks of the graph's nodes."""

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
    """Tasks beside each other. Each follows all of the layer before."""

    kind: DagTask
    width: int


def growth(new: int) -> tuple[Layer, ...]:
    """Return the tasks by which the cluster gets `new` more nodes."""
    return (Layer(DagTask.SCALE, 1), Layer(DagTask.INIT, new)) if new else ()


def listed(trains: Floats, parallel: int) -> Floats:
    """Return when the last trial ends, for each draw, if `parallel` run at a time: the next one goes to
    whichever place is free first. `trains`: how long each takes, a row for each draw."""
    free = trains[:, :parallel].copy()  # when each place is free again
    rows = np.arange(trains.shape[0])
    for k in range(free.shape[1], trains.shape[1]):
        free[rows, free.argmin(axis=1)] += trains[:, k]
    longest: Floats = free.max(axis=1)
    return longest


def duration(latencies: Sequence[Floats]) -> Floats:
    """Return when the last task of layers ends, for each draw: the critical path (algorithm 1).

    `latencies[i]` holds those of layer i: a row for each draw, a column for each task.
    """
    ends: Floats = np.zeros((latencies[0].shape[0] if latencies else 1, 1))
    for latency in latencies:
        ends = ends.max(axis=1, keepdims=True) + latency
    longest: Floats = ends.max(axis=1)
    return longest
