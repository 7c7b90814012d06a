"""Nodes that are worth their cost: sizes of a cluster by the utility that its trainers make of it.

UTILITY is the sum of the trainers' speed-ups over all GPUs (Pollux, equation 17): 1 where each GPU does as
much as one alone would. A cluster has more nodes while utility is above two bounds, and fewer below them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bftrainer.messages.specs import NO_SAMPLES
from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.trainer import Points
from bftrainer.performance import curve
from bftrainer.performance.curve import Floats
from bftrainer.performance.goodput import GoodputError


@dataclass(frozen=True, slots=True)
class UtilityBounds:
    """The utility to keep, from `low` to `high`, with `least` to `most` nodes, as `allowed`.

    Raises:
        GoodputError: bounds that contradict each other, or that no utility can have.
    """

    low: float
    high: float
    least: int = 1
    most: int = 16
    allowed: AllowedSizes = EVERY_SIZE

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise GoodputError(
                f"the utility is to lie in [{self.low}, {self.high}]; both are from 0 to 1, and the low one "
                "is no larger than the high one"
            )
        if not 1 <= self.least <= self.most:
            raise GoodputError(
                f"the nodes are to lie in [{self.least}, {self.most}]; the least are 1 or more, and no more "
                "than the most"
            )
        if not self.sizes:
            raise GoodputError(f"the trainer runs on no number of nodes from {self.least} to {self.most}")

    @property
    def sizes(self) -> list[int]:
        """The numbers of nodes to choose from, ascending."""
        return [n for n in range(self.least, self.most + 1) if self.allowed.floor(n) == n]

    @property
    def middle(self) -> float:
        """The utility that is aimed at where the present one is outside."""
        return (self.low + self.high) / 2

    def has(self, utility: float) -> bool:
        """True if a utility is within the bounds."""
        return bool(self.low <= utility <= self.high)

    def size(self, utilities: Sequence[float] | Floats, held: int = 0) -> int:
        """Nodes, one of `sizes`, by the utility of each number from 1 on, shape (`most`,) at least.

        `held` stays while its utility is within the bounds. Otherwise it is the number whose utility lies
        closest to their middle; none need be within. Utility is taken to fall with nodes, as in the paper:
        a number that has less of it than some larger one counts as good as that. Of equals it is the largest
        above the middle, and else the smallest.
        """
        sizes = np.array(self.sizes)
        if held in sizes and self.has(utilities[held - 1]):
            return held
        falling = np.maximum.accumulate(np.asarray(utilities)[sizes - 1][::-1])[::-1]
        off = np.round(falling - self.middle, 9)
        closest = np.flatnonzero(np.abs(off) == np.abs(off).min())
        above = closest[off[closest] > 0]
        return int(sizes[above[-1] if len(above) else closest[0]])


@dataclass(frozen=True, slots=True)
class TrainingOnNodes:
    """A whole training on a number of nodes, or on several after each other.

    `course`: nodes in each phase. `time_s` and `node_s`: what it takes. `useful` and `samples`: samples of
    m0 that its progress counts, and those processed. `utility`: the mean over time of all GPUs.
    """

    course: tuple[int, ...]
    time_s: float
    node_s: float
    useful: float
    samples: float
    utility: float

    @property
    def goodput(self) -> float:
        """Samples of m0 per second."""
        return self.useful / self.time_s

    @property
    def efficiency(self) -> float:
        """Worth of a sample, relative to one in a batch of m0."""
        return self.useful / self.samples


@dataclass(frozen=True, eq=False)
class TrainingPhases:
    """A training in P phases of constant speed, on each of 1 to N nodes with `gpus` GPUs each.

    `useful`: samples of m0 that a phase counts, shape (P,). `alone_s`: its time on one GPU, shape (P,).
    `seconds` and `samples`: its time, and the samples processed, shape (N, P).
    """

    gpus: int
    useful: Floats
    alone_s: Floats
    seconds: Floats
    samples: Floats

    @property
    def utilities(self) -> Floats:
        """The utility of each number of nodes in each phase, shape (N, P)."""
        nodes = np.arange(1, len(self.seconds) + 1)[:, np.newaxis]
        return np.asarray(self.alone_s / self.seconds / (nodes * self.gpus))

    def on(self, course: Sequence[int]) -> TrainingOnNodes:
        """The training with `course[p]` nodes in phase p."""
        nodes, phases = np.asarray(course), np.arange(len(self.useful))
        seconds = self.seconds[nodes - 1, phases]
        node_s = float((seconds * nodes).sum())
        return TrainingOnNodes(
            course=tuple(int(count) for count in course),
            time_s=float(seconds.sum()),
            node_s=node_s,
            useful=float(self.useful.sum()),
            samples=float(self.samples[nodes - 1, phases].sum()),
            utility=float(self.alone_s.sum()) / (node_s * self.gpus),
        )

    def fixed(self, nodes: int) -> TrainingOnNodes:
        """The training with one number of nodes to its end."""
        return self.on([nodes] * len(self.useful))

    def scaled(self, bounds: UtilityBounds) -> TrainingOnNodes:
        """The training with its nodes chosen again at each phase."""
        course, held = [], 0
        for utilities in self.utilities.T:
            held = bounds.size(utilities, held)
            course.append(held)
        return self.on(course)


def phases_of_curve(points: Points, samples: float, most: int) -> TrainingPhases:
    """A training of `samples` samples, each worth the same, on up to `most` nodes by a curve of speeds.

    Raises:
        GoodputError: no samples.
    """
    if not samples > 0:
        raise GoodputError(NO_SAMPLES.say(samples=samples))
    speeds = curve.table(points, most)[1:]
    seconds = (samples / speeds)[:, np.newaxis]
    return TrainingPhases(1, np.array([samples]), seconds[0], seconds, np.full_like(seconds, samples))
