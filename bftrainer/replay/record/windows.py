"""A replay in windows of some hours: how efficient it was in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from bftrainer.model.policy import EngineSettings
from bftrainer.replay.figures import dedicated_samples
from bftrainer.replay.record.data import Window
from bftrainer.replay.tally import ByClass, plus
from bftrainer.replay.trainers.simulated import SimulatedTrainer
from bftrainer.replay.workload import Submission

WINDOW_S = 6 * 3600.0
"""U and E are shown per six hours, as in figure 10 of the paper."""
SHORT_S = 4 * WINDOW_S
"""Shorter replays have eight windows, so that there is a course to be seen."""


def window_s(span: float) -> float:
    """Length (s) of the windows of a replay of `span` seconds."""
    return WINDOW_S if span >= SHORT_S else span / 8


class RunningTotals(NamedTuple):
    """The samples processed since the begin, and their costs: the last four columns of `Moments`."""

    samples: float = 0.0
    linear_node_s: float = 0.0
    rescale_samples: float = 0.0
    preemption_samples: float = 0.0

    def plus(self, trainer: SimulatedTrainer, now: float) -> RunningTotals:
        """These and a trainer's up to `now`."""
        return RunningTotals(
            self.samples + trainer.samples_at(now),
            self.linear_node_s + trainer.linear_node_s(now),
            self.rescale_samples + trainer.rescaled_samples,
            self.preemption_samples + trainer.preempted_samples,
        )


class Border(NamedTuple):
    """The state between two windows: node-time in the pool so far, by class, totals, samples of
    unfinished trainers."""

    time: float
    node_s: ByClass
    totals: RunningTotals
    samples: dict[int, float]
    ended: frozenset[int]


def between(
    first: Border, last: Border, workload: Sequence[Submission], settings: EngineSettings, begin: float
) -> Window:
    """The window between two borders of the replay that began at `begin`."""
    class_s = plus(last.node_s, first.node_s, -1)
    node_s, nodes = sum(class_s.values()), plus({}, class_s, 1 / (last.time - first.time))
    left = [
        replace(s, spec=replace(s.spec, samples=_left(s.spec.samples, first.samples.get(id_, 0.0))))
        for id_, s in enumerate(workload, start=1)
        if id_ not in first.ended and s.time < last.time
    ]
    static = dedicated_samples(left, settings, nodes, first.time, last.time) if left else 0.0
    done = RunningTotals(*(b - a for a, b in zip(first.totals, last.totals, strict=True)))
    return Window(
        begin=first.time - begin,
        end=last.time - begin,
        nodes=sum(nodes.values()),
        samples=done.samples,
        efficiency_u=done.samples / static if static else None,
        linear_efficiency=done.linear_node_s / node_s if node_s and left else None,
        rescale_samples=done.rescale_samples,
        preemption_samples=done.preemption_samples,
    )


def _left(samples: int | None, done: float) -> int | None:
    """Remaining samples of a trainer that has not ended: at least 1."""
    return None if samples is None else max(1, round(samples - done))
