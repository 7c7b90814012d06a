"""Labels of the exact planner: plans for the first stages, many at once, as arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bftrainer.search.plan.profile import Floats
from bftrainer.search.plan.table import Ints, Table

Index = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Labels:
    """Plans for the first k stages, a row each.

    Attributes:
        seconds, cost: So far. Nodes that are still held are paid for their time, without their minimum.
        path: The index of the allocation in each stage.
        count, age: Nodes by the stage with which they came, and for how long they are paid.
    """

    seconds: Floats
    cost: Floats
    path: Index
    count: Ints
    age: Floats

    def where(self, chosen: Index) -> Labels:
        """Only the chosen rows."""
        return Labels(
            self.seconds[chosen], self.cost[chosen], self.path[chosen], self.count[chosen], self.age[chosen]
        )

    def pending(self, minimum_s: float) -> Floats:
        """Node-seconds to be paid in addition if all nodes were given back now."""
        more: Floats = (self.count * np.maximum(0.0, minimum_s - self.age)).sum(axis=1)
        return more


def begin(table: Table) -> Labels:
    """The one label before the first stage. Nodes that are there already have no minimum left to pay."""
    held, paid = np.array([[table.held]]), np.array([[np.inf]])
    return Labels(np.zeros(1), np.zeros(1), np.zeros((1, 0), dtype=np.intp), held, paid)


def advance(
    table: Table, labels: Labels, k: int, promising: Callable[[Floats, Floats, Index], Mask]
) -> Labels:
    """Every label with every allocation of stage k that `promising` (seconds, cost, allocation) accepts."""
    before = labels.path[:, -1] if k else np.zeros(labels.seconds.size, dtype=np.intp)
    seconds = labels.seconds[:, None] + table.wait_s[k][before] + table.seconds[k]
    cost = labels.cost[:, None] + table.growth[k][before] + table.cost[k]
    choice = np.broadcast_to(np.arange(table.nodes[k].size), seconds.shape)
    row, to = np.nonzero(promising(seconds, cost, choice))
    nodes, old, age = table.nodes[k][to], labels.count[row], labels.age[row]
    kept = np.clip(nodes[:, None] - (np.cumsum(old, axis=1) - old), 0, old)  # the last to come leaves first
    left = ((old - kept) * np.maximum(0.0, table.minimum_s - age)).sum(axis=1) * table.per_s
    scaling = table.scaling_s[k][before[row], to]
    ready = (
        table.wait_s[k][before[row], to] - scaling + table.seconds[k][to]
    )  # paid of new nodes, from INIT on
    return Labels(
        seconds[row, to],
        cost[row, to] + left,
        np.column_stack([labels.path[row], to]),
        np.column_stack([kept, np.maximum(0, nodes - old.sum(axis=1))]),
        np.column_stack([age + (ready + scaling)[:, None], ready]),
    )


def undominated(labels: Labels, table: Table) -> Labels:
    """Without labels that another one replaces: on as many nodes, no later, and no dearer even if all of its
    nodes were given back at once.
    """
    last = labels.path[:, -1]
    order = np.lexsort((labels.cost, labels.seconds, last))
    cost = labels.cost[order]
    worst = cost + labels.pending(table.minimum_s)[order] * table.per_s
    apart = (float(worst.max(initial=0.0)) + 1.0) * last[
        order
    ]  # each number of nodes is compared with itself
    least = np.minimum.accumulate(np.concatenate([[np.inf], worst - apart]))[:-1]
    return labels.where(order[cost - apart < least])
