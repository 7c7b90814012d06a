"""Inputs of a plan: how fast trials are, how long nodes take to come, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.trainer import Points
from bftrainer.performance import curve

Floats = npt.NDArray[np.float64]


class Family(StrEnum):
    """Distributions of a latency."""

    NORMAL = "normal"
    """Cut off at 0: what would be below counts as 0."""
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency: mean and standard deviation, in seconds or relative to something else."""

    mean: float = 0.0
    std: float = 0.0
    family: Family = Family.NORMAL

    def of(self, z: Floats) -> Floats:
        """Latencies from standard normal numbers, of the same shape; they rise with these."""
        if not self.std:
            return np.full_like(z, self.mean)
        if self.family is Family.NORMAL:
            return np.maximum(0.0, self.mean + self.std * z)
        variance = math.log1p((self.std / self.mean) ** 2)
        return np.exp(math.log(self.mean) - variance / 2 + math.sqrt(variance) * z)

    @property
    def expected(self) -> float:
        """The mean of what `of` gives: above `mean` where a normal one is cut off."""
        return self._moments()[0]

    def averaged(self, count: float) -> Latency:
        """Return the distribution of the mean of `count` independent ones."""
        if count <= 1:
            return self
        mean, variance = self._moments()
        return Latency(mean, math.sqrt(variance / count), self.family)

    def _moments(self) -> tuple[float, float]:
        """Mean and variance, after what is below 0 was cut off."""
        if not self.std or self.family is Family.LOGNORMAL:
            return self.mean, self.std**2
        ratio, standard = min(self.mean / self.std, 40.0), NormalDist()  # beyond 40, nothing is cut off
        more = standard.pdf(ratio) - ratio * standard.cdf(-ratio)
        variance = self.std**2 * (standard.cdf(ratio) - (ratio + more) * more)
        return self.mean + self.std * more, variance


class SpreadOf(StrEnum):
    """The unit that is slower or faster than the mean: a whole task, or each iteration by itself."""

    TASK = "task"
    ITERATION = "iteration"


@dataclass(frozen=True, slots=True)
class Spread:
    """Stragglers: how much training tasks differ, relative to their mean."""

    std: float = 0.0
    family: Family = Family.NORMAL
    of: SpreadOf = SpreadOf.TASK

    def factor(self, iterations: float) -> Latency:
        """Return the distribution of the factor by which a task of `iterations` exceeds its mean time."""
        one = Latency(1.0, self.std, self.family)
        return one.averaged(iterations) if self.of is SpreadOf.ITERATION else one


class Per(StrEnum):
    """The unit of billing."""

    NODE = "node"
    """A node from the moment when it is provisioned until it is given back."""
    FUNCTION = "function"
    """Workers while they work for a trial."""


@dataclass(frozen=True, slots=True)
class Billing:
    """Prices of nodes and data.

    Attributes:
        per: The unit of billing.
        price: Price of a node-hour. Per function, a worker costs its share of a node's.
        minimum_s: Least seconds billed of a node, or of a task where functions are billed.
        data_gb: GB that each new node has to fetch.
        data_price: Price of one GB.
        unit: Unit of the prices.
    """

    per: Per = Per.NODE
    price: float = 1.0
    minimum_s: float = 0.0
    data_gb: float = 0.0
    data_price: float = 0.0
    unit: str = "node-hours"

    @property
    def fetch(self) -> float:
        """Return the cost of fetching the data onto a new node."""
        return self.data_gb * self.data_price

    @property
    def per_s(self) -> float:
        """Return the cost of a node per second."""
        return self.price / 3600


@dataclass(frozen=True, slots=True)
class ExperimentProfile:
    """All that a plan needs to know beside the stages.

    Attributes:
        curve: Samples/s of a trial by its workers.
        iteration_samples: Samples of an iteration.
        node_workers: Workers that fit on a node, such as its GPUs; 1 where trials take whole nodes.
        least, most: Workers of a trial that runs.
        sizes: Which of these it may have.
        nodes: The most nodes that may be had at a time.
        parallelism: Trials that run at a time, at most; None: all.
        spread: Stragglers.
        start: From the moment when a trial's workers are placed until they train.
        scale: Until nodes that are asked for are there; nothing is paid for them yet.
        init: Until a new node can be used; it is paid for.
        sync: The end of a stage, in which trials are compared.
    """

    curve: Points
    iteration_samples: float = 1.0
    node_workers: int = 1
    least: int = 1
    most: int = 512
    sizes: AllowedSizes = EVERY_SIZE
    nodes: int = 512
    parallelism: int | None = None
    spread: Spread = field(default_factory=Spread)
    start: Latency = field(default_factory=Latency)
    scale: Latency = field(default_factory=Latency)
    init: Latency = field(default_factory=Latency)
    sync: Latency = field(default_factory=Latency)
    billing: Billing = field(default_factory=Billing)

    @property
    def differ(self) -> bool:
        """Return whether the trials of a stage take differently long."""
        return bool(self.spread.std or self.start.std)

    def iteration_s(self, workers: int) -> float:
        """Return the mean seconds of an iteration of a trial with `workers`, at least 1."""
        return self.iteration_samples / curve.rate(self.curve, workers)

    def at_once(self, trials: int) -> int:
        """Return how many of `trials` may run at a time."""
        return trials if self.parallelism is None else min(trials, self.parallelism)

    def fastest(self, workers: int) -> int:
        """Return the fewest workers, from `least` to `workers`, with which a trial is fastest."""
        bound = self.fitting(workers)
        rates = curve.table(self.curve, bound)
        allowed = [n for n in range(self.least, bound + 1) if self.sizes.floor(n) == n]
        return allowed[int(np.argmax(rates[allowed]))]

    def rising(self) -> list[int]:
        """The numbers of workers that a trial may have, each of which makes it faster than all before."""
        bound = min(self.most, self.nodes * self.node_workers)
        if bound < self.least:
            return []
        rates = curve.table(self.curve, bound)
        found: list[int] = []
        for n in range(self.least, bound + 1):
            if self.sizes.floor(n) == n and (not found or rates[n] > rates[found[-1]]):
                found.append(n)
        return found

    def fitting(self, workers: int) -> int:
        """Return the most of `workers` that a trial may have; the least if they are too few."""
        return self.sizes.fitting(workers, self.least, self.most) or self.least
