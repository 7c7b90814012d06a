"""Every even plan of a small search, priced node by node and trial by trial: an oracle for planners.

It shares nothing with the planners but the words in which a search and a profile are given.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bftrainer.performance import curve
from bftrainer.search.plan.model.experiment import Stage
from bftrainer.search.plan.model.profile import ExperimentProfile


@dataclass
class Node:
    """A node that is held; for how long it is paid."""

    paid_s: float = 0.0


def priced(
    stages: Sequence[Stage], shapes: Sequence[tuple[int, int, int]], own: ExperimentProfile
) -> tuple[float, float]:
    """Seconds and cost where stage k runs `shapes[k]`: trials at a time, workers of each, nodes held."""
    held: list[Node] = []
    now = cost = 0.0

    def give_back(count: int) -> float:
        return sum(
            max(0.0, own.billing.minimum_s - held.pop().paid_s) for _ in range(count)
        )  # the last to come leaves first

    for stage, (parallel, workers, nodes) in zip(stages, shapes, strict=True):
        cost += give_back(max(0, len(held) - nodes)) * own.billing.per_s
        new = [Node() for _ in range(nodes - len(held))]
        free = [0.0] * parallel  # when each place is free again
        for _ in range(stage.trials):
            place = free.index(min(free))
            free[place] += own.start.mean + stage.iterations * own.iteration_samples / curve.rate(
                own.curve, workers
            )
        works = max(free) + own.sync.mean
        waits = own.scale.mean if new else 0.0
        ready = own.init.mean if new else 0.0
        for node in held:
            node.paid_s += waits + ready + works
            cost += (waits + ready + works) * own.billing.per_s
        for node in new:
            node.paid_s += ready + works
            cost += (ready + works) * own.billing.per_s + own.billing.fetch
        held += new
        now += waits + ready + works
    return now, cost + give_back(len(held)) * own.billing.per_s


def shapes_of(stage: Stage, own: ExperimentProfile) -> Iterator[tuple[int, int, int]]:
    """All trials at a time, or so few that waves are even, with any workers, on any nodes that hold them."""
    for waves in range(1, stage.trials + 1):
        parallel = math.ceil(stage.trials / waves)
        if math.ceil(stage.trials / parallel) != waves:
            continue
        for workers in range(own.least, min(own.most, own.nodes * own.node_workers) + 1):
            if workers > own.node_workers:
                needed = parallel * math.ceil(workers / own.node_workers)
            else:
                needed = math.ceil(parallel / (own.node_workers // workers))
            for nodes in range(needed, own.nodes + 1):
                yield parallel, workers, nodes


def every_plan(stages: Sequence[Stage], own: ExperimentProfile) -> list[tuple[float, float]]:
    """Seconds and cost of every plan."""
    options = [list(shapes_of(stage, own)) for stage in stages]
    return [priced(stages, shapes, own) for shapes in itertools.product(*options)]
