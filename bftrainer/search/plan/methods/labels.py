"""Labels of the exact planner: plans for the first stages, many at once, as arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from bftrainer.search.plan.model.profile import Floats
from bftrainer.search.plan.model.table import Ints, Table

Index = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Labels:
    """Plans for the first k stages, a row each.

    Attributes:
        seconds, cost: So far. Nodes that are still held are paid for their time, without their minimum.
        path: The index of the allocation in each stage.
        count, age: Nodes by the stage with which they came, and for how long they are paid.
        age_std: A bound on how much that differs between draws.
        more: What minimum charges may have cost beyond `cost`, in which they are those of mean ages.
    """

    seconds: Floats
    cost: Floats
    path: Index
    count: Ints
    age: Floats
    age_std: Floats
    more: Floats

    def where(self, chosen: Index) -> Labels:
        """Only the chosen rows."""
        return Labels(*(getattr(self, own.name)[chosen] for own in fields(self)))

    def pending(self, minimum_s: float) -> tuple[Floats, Floats]:
        """Node-seconds to be paid in addition if all nodes were given back now: at least, and at most."""
        least, most = shortfall(minimum_s, self.age, self.age_std)
        return (self.count * least).sum(axis=1), (self.count * most).sum(axis=1)


def shortfall(minimum_s: float, age: Floats, std: Floats) -> tuple[Floats, Floats]:
    """Bounds on the mean of max(0, minimum - age) over draws, from the age's mean and a bound on its standard
    deviation: Jensen's inequality from below, and that of Cauchy and Schwarz from above."""
    missing = np.maximum(minimum_s - age, -1e12)
    far = np.hypot(missing, std)
    below = std * std / np.maximum(2 * (far - missing), 1e-9)  # the same, without cancelling digits
    return np.maximum(0.0, missing), np.where(missing >= 0, (missing + far) / 2, below)


def begin(table: Table) -> Labels:
    """The one label before the first stage. Nodes that are there already have no minimum left to pay."""
    held, paid = np.array([[table.held]]), np.array([[np.inf]])
    path = np.zeros((1, 0), dtype=np.intp)
    return Labels(np.zeros(1), np.zeros(1), path, held, paid, np.zeros((1, 1)), np.zeros(1))


def advance(
    table: Table, labels: Labels, k: int, promising: Callable[[Floats, Floats, Index], Mask]
) -> Labels:
    """Every label with every allocation of stage k that `promising` (seconds, cost, allocation) accepts."""
    before = labels.path[:, -1] if k else np.zeros(labels.seconds.size, dtype=np.intp)
    seconds = labels.seconds[:, None] + table.wait_s[k][before] + table.seconds[k]
    cost = labels.cost[:, None] + table.growth[k][before] + table.cost[k]
    choice = np.broadcast_to(np.arange(table.nodes[k].size), seconds.shape)
    row, to = np.nonzero(promising(seconds, cost, choice))
    nodes, old, age, std = table.nodes[k][to], labels.count[row], labels.age[row], labels.age_std[row]
    kept = np.clip(nodes[:, None] - (np.cumsum(old, axis=1) - old), 0, old)  # the last to come leaves first
    least, most = ((old - kept) * own for own in shortfall(table.minimum_s, age, std))
    left = least.sum(axis=1) * table.per_s
    scaling = table.scaling_s[k][before[row], to]
    ready = (
        table.wait_s[k][before[row], to] - scaling + table.seconds[k][to]
    )  # paid of new nodes, from INIT on
    more_std = table.wait_std[k][before[row], to] + table.seconds_std[k][to]
    return Labels(
        seconds[row, to],
        cost[row, to] + left,
        np.column_stack([labels.path[row], to]),
        np.column_stack([kept, np.maximum(0, nodes - old.sum(axis=1))]),
        np.column_stack([age + (ready + scaling)[:, None], ready]),
        np.column_stack([std + more_std[:, None], more_std]),
        labels.more[row] + most.sum(axis=1) * table.per_s - left,
    )


def undominated(labels: Labels, table: Table) -> Labels:
    """Without labels that another one replaces: on as many nodes, no later, and no dearer even if all of its
    nodes were given back at once.
    """
    last = labels.path[:, -1]
    order = np.lexsort((labels.cost, labels.seconds, last))
    cost = labels.cost[order]
    worst = cost + (labels.more + labels.pending(table.minimum_s)[1] * table.per_s)[order]
    apart = (float(worst.max(initial=0.0)) + 1.0) * last[
        order
    ]  # each number of nodes is compared with itself
    least = np.minimum.accumulate(np.concatenate([[np.inf], worst - apart]))[:-1]
    return labels.where(order[cost - apart < least])
