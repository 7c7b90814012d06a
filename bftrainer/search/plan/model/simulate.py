"""Simulates a plan's time and cost: draws of its graph's latencies, many at once.

Stages end with a barrier, so a plan takes as long as its stages one after the other. All plans for one
experiment are simulated with the same draws: two plans differ by what they do, not by luck, and a stage that
occurs in many plans is drawn once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bftrainer.search.plan.model.dag import DagTask, Layer, duration, growth, listed
from bftrainer.search.plan.model.experiment import Experiment
from bftrainer.search.plan.model.profile import ExperimentProfile, Floats, Latency, Per
from bftrainer.search.plan.model.step import PlanStep

SAMPLES = 64
"""Draws, unless a caller wants more."""
TOLERANCE = 1e-9
"""Sums that differ by this share are equal: their last digits depend on the order of adding up."""
MOMENT_S = 1e-6
"""Times that differ by less are equal: years of a log leave no more digits of them."""


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """Times and costs of a plan: a row for each stage, a column for each draw.

    Attributes:
        seconds: Time of each stage, including the wait for its nodes.
        cost: By stage, in the profile's unit. A node's minimum charge counts where it is given back.
    """

    seconds: Floats
    cost: Floats

    @property
    def jct_s(self) -> float:
        """Mean seconds until all is done."""
        return float(self.seconds.sum(axis=0).mean())

    @property
    def total(self) -> float:
        """Mean cost."""
        return float(self.cost.sum(axis=0).mean())

    @property
    def jct_std_s(self) -> float:
        """Standard deviation of the seconds."""
        return float(self.seconds.sum(axis=0).std())

    @property
    def total_std(self) -> float:
        """Standard deviation of the cost."""
        return float(self.cost.sum(axis=0).std())

    def chance(self, deadline_s: float) -> float:
        """The share of draws in which all is done by then."""
        return float(in_time(self.seconds.sum(axis=0), deadline_s).mean())


def in_time(seconds: Floats, deadline_s: float) -> NDArray[np.bool_]:
    """Return a mask of the times within the deadline, inclusive."""
    return seconds <= deadline_s * (1 + TOLERANCE) + MOMENT_S


@dataclass(slots=True)
class Simulator:
    """Simulates plans for one experiment. The same seed gives the same figures."""

    experiment: Experiment
    profile: ExperimentProfile
    samples: int = SAMPLES
    seed: int = 0
    held: int = 0  # nodes that are there before the first stage
    _stages: dict[tuple[int, int, int], tuple[Floats, Floats]] = field(default_factory=dict)
    _means: dict[tuple[int, int, int], tuple[float, float]] = field(default_factory=dict)
    _drawn: dict[tuple[int, DagTask, int, Latency], Floats] = field(default_factory=dict)
    _inits: dict[int, Floats] = field(default_factory=dict)
    _totals: dict[int, tuple[float, float]] = field(default_factory=dict)

    def anew(self, samples: int) -> Simulator:
        """Return a simulator with `samples` draws of its own, independent of this one's."""
        return Simulator(self.experiment, self.profile, samples, self.seed + 2**32, self.held)

    def stage(self, index: int, step: PlanStep) -> tuple[Floats, Floats]:
        """A stage on nodes that are there, for each draw: its seconds, and what is billed per function."""
        key = (index, step.parallel, step.workers)
        if key not in self._stages:
            trains = self._trains(index, step)
            billed = np.maximum(trains, self.profile.billing.minimum_s).sum(axis=1) * step.workers
            longest = listed(trains, step.parallel) if self.profile.differ else step.waves * trains[:, 0]
            self._stages[key] = longest + self.syncs(index), billed
        return self._stages[key]

    def means(self, index: int, step: PlanStep) -> tuple[float, float]:
        """The means of what `stage` says."""
        key = (index, step.parallel, step.workers)
        if key not in self._means:
            seconds, billed = self.stage(index, step)
            self._means[key] = float(seconds.mean()), float(billed.mean())
        return self._means[key]

    def at_least(self, index: int, step: PlanStep) -> float:
        """A lower bound of the mean seconds of `stage`: as if no place were ever empty."""
        if index not in self._totals:
            factor, starts = self.factors(index), self.starts(index)
            self._totals[index] = float(starts.sum(axis=1).mean()), float(factor.sum(axis=1).mean())
        starts_s, factors = self._totals[index]
        trains = starts_s + step.stage.iterations * self.profile.iteration_s(step.workers) * factors
        return trains / step.parallel

    def factors(self, index: int) -> Floats:
        """By what factor each trial of a stage is slower than the mean: a row for each draw."""
        stage = self.experiment.stages[index]
        layer = Layer(DagTask.TRAIN, stage.trials)
        return self._draw(self.profile.spread.factor(stage.iterations), index, layer)

    def starts(self, index: int) -> Floats:
        """Return the seconds that each trial of a stage takes to start: a row for each draw."""
        layer = Layer(DagTask.TRAIN, self.experiment.stages[index].trials)
        return self._draw(self.profile.start, index, layer, part=1)

    def syncs(self, index: int) -> Floats:
        """Return the seconds to compare the trials of a stage at its end, for each draw."""
        return self._draw(self.profile.sync, index, Layer(DagTask.SYNC, 1))[:, 0]

    def scaling(self, index: int, new: int) -> tuple[Floats, Floats]:
        """Return the provider's time for `new` nodes before a stage, and that of their initialisation."""
        layers = growth(new)
        if not layers:
            return np.zeros(self.samples), np.zeros(self.samples)
        scale = duration([self._draw(self.profile.scale, index, layers[0])])
        return scale, self.init_longest(index)[:, new - 1]

    def init_longest(self, index: int) -> Floats:
        """The longest of the first 1, 2, ... initialisations before a stage: a column for each number."""
        if index not in self._inits:
            layer = Layer(DagTask.INIT, max(1, self.profile.nodes))
            self._inits[index] = np.maximum.accumulate(self._draw(self.profile.init, index, layer), axis=1)
        return self._inits[index]

    def estimate(self, steps: Sequence[PlanStep]) -> PlanEstimate:
        """Return times and costs of a plan, a step for each stage."""
        billing = self.profile.billing
        before = [self.held, *(step.nodes for step in steps[:-1])]
        new = [max(0, step.nodes - n) for step, n in zip(steps, before, strict=True)]
        scales, inits = map(np.array, zip(*(self.scaling(k, n) for k, n in enumerate(new)), strict=True))
        trains, busy = map(np.array, zip(*(self.stage(k, s) for k, s in enumerate(steps)), strict=True))
        seconds = scales + inits + trains
        fetched = billing.fetch * np.array(new)[:, None]
        if billing.per is Per.FUNCTION:
            cost = busy * billing.per_s / self.profile.node_workers + fetched
            return PlanEstimate(seconds, cost)
        cost = fetched + _held(steps, self.held, scales, inits + trains, billing.minimum_s) * billing.per_s
        return PlanEstimate(seconds, cost)

    def _trains(self, index: int, step: PlanStep) -> Floats:
        trains_s = step.stage.iterations * self.profile.iteration_s(step.workers)
        return self.starts(index) + trains_s * self.factors(index)

    def _draw(self, latency: Latency, index: int, layer: Layer, part: int = 0) -> Floats:
        key = (index, layer.kind, part, latency)
        if key not in self._drawn:
            rng = np.random.default_rng([self.seed, index, list(DagTask).index(layer.kind), part])
            if layer.kind is DagTask.INIT:  # a node's draws are the same, however many may be had
                normal = rng.standard_normal((layer.width, self.samples)).T
            else:
                normal = rng.standard_normal((self.samples, layer.width))
            self._drawn[key] = latency.of(normal)
        return self._drawn[key]


def _held(steps: Sequence[PlanStep], held: int, scales: Floats, after: Floats, minimum_s: float) -> Floats:
    """Node-seconds that are paid, by stage and draw: nodes that stay are paid while others are waited for.

    The node that came last leaves first. One paid for less than `minimum_s` costs the rest when it leaves.
    """
    counts = [step.nodes for step in steps]
    paid = np.zeros_like(after)
    edges = sorted({0, held, *counts})
    for low, high in pairwise(edges):  # these nodes come and go together
        age = np.full(after.shape[1], np.inf if held >= high else 0.0)
        there = held >= high
        for k, count in enumerate(counts):
            if count < high:
                there = False
                continue
            more = after[k] + (scales[k] if there else 0.0)
            age, there = (age if there else 0.0) + more, True
            paid[k] += (high - low) * more
            if k + 1 == len(counts) or counts[k + 1] < high:
                paid[k] += (high - low) * np.maximum(0.0, minimum_s - age)
    return paid
