"""Goodput: throughput times statistical efficiency, by Pollux's model (OSDI 2021). Pure.

Notation of the paper: K workers on N nodes, m0 the user's batch, M the global batch. A worker takes m samples
at a time and accumulates s times before the workers synchronise, so that M = K m (s + 1). Times are in
seconds, batches in samples. All functions take numbers or arrays that broadcast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bftrainer.errors import BftrainerError
from bftrainer.performance.curve import Floats

Numbers = npt.ArrayLike
CANDIDATES = 50
"""Global batches that are compared for a number of workers, in geometric steps."""
FULL = (1, 2, 3, 4)
"""Numbers of full passes whose batches are compared, too: goodput drops where one more step is needed."""
ROUNDING = 1e-8
"""Excess of a batch over a whole number that the error of a division explains."""
AS_GOOD_AS_INFINITE = 1e300
"""Noise scale at which all batches are equally efficient, as with an infinite one."""
MOST_GAMMA = 10.0
"""Gamma's upper bound: with 10, the longer of two times counts within 8 %."""


class GoodputError(BftrainerError, ValueError):
    """A value with which goodput has no meaning. The message names value, bound and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemModel:
    """The seven parameters theta_sys of the time of an iteration (equation 12), in s and s/sample.

    `alpha_grad`, `beta_grad`: computing gradients. `alpha_local`, `beta_local`: synchronising workers of one
    node; `alpha_node`, `beta_node`: of several. `gamma`: overlap of both, 1 none to 10 nearly all.

    Raises:
        GoodputError: a parameter that is not finite or below 0, gradients that take no time, or gamma
            outside [1, 10].
    """

    alpha_grad: float
    beta_grad: float
    alpha_local: float = 0.0
    beta_local: float = 0.0
    alpha_node: float = 0.0
    beta_node: float = 0.0
    gamma: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise GoodputError(f"{name} is {value}; it must be finite and at least 0")
        if self.alpha_grad + self.beta_grad <= 0:
            raise GoodputError("alpha_grad and beta_grad are both 0; computing a gradient takes time")
        if not 1 <= self.gamma <= MOST_GAMMA:
            raise GoodputError(f"gamma is {self.gamma}; it must lie in [1, {MOST_GAMMA:g}]")

    def gradient_time(self, batch: Numbers) -> Floats:
        """T_grad (equation 9): seconds for one pass over `batch` samples of a worker."""
        return np.asarray(self.alpha_grad + self.beta_grad * np.asarray(batch, float))

    def sync_time(self, nodes: Numbers, workers: Numbers) -> Floats:
        """T_sync (equation 10): 0 with one worker, else linear in the workers beyond the second."""
        workers, several = np.asarray(workers, float), np.asarray(nodes) > 1
        beyond = np.maximum(workers - 2, 0)
        local = self.alpha_local + self.beta_local * beyond
        across = self.alpha_node + self.beta_node * beyond
        return np.where(workers <= 1, 0.0, np.where(several, across, local))

    def iteration_time(
        self, nodes: Numbers, workers: Numbers, batch: Numbers, accumulation: Numbers = 0
    ) -> Floats:
        """T_iter (equation 11, and the final version's s T_grad): both times, overlapped as gamma says."""
        gradient, sync = self.gradient_time(batch), self.sync_time(nodes, workers)
        longer, shorter = np.maximum(gradient, sync), np.minimum(gradient, sync)
        overlapped = longer * (1 + (shorter / longer) ** self.gamma) ** (1 / self.gamma)
        return np.asarray(np.asarray(accumulation) * gradient + overlapped)


class IterationTimes(Protocol):
    """Predicts the time of an iteration: a fitted model, or one that follows measurements."""

    def iteration_time(
        self, nodes: Numbers, workers: Numbers, batch: Numbers, accumulation: Numbers = 0
    ) -> Floats:
        """T_iter, in s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Batches that a trainer may use, in samples.

    `initial` (m0) and `most` bound the global batch M; `local_least` and `local_most` what a worker takes at
    a time: its memory holds no more than `local_most`.

    Raises:
        GoodputError: bounds that contradict each other.
    """

    initial: int
    most: int
    local_least: int = 1
    local_most: int

    def __post_init__(self) -> None:
        if not 1 <= self.initial <= self.most:
            raise GoodputError(
                f"the batch is to lie in [{self.initial}, {self.most}]; the initial one is 1 or more, and no "
                "more than the largest"
            )
        if not 1 <= self.local_least <= self.local_most:
            raise GoodputError(
                f"a worker's batch is to lie in [{self.local_least}, {self.local_most}]; the least is 1 or "
                "more, and no more than the memory holds"
            )
        if self.local_least > self.most:
            raise GoodputError(
                f"a worker takes {self.local_least} samples or more, but no batch has more than {self.most}; "
                "lower the one or raise the other"
            )


def noise_scale(initial: int, sqr: float, var: float) -> float:
    """phi = m0 sigma^2 / mu^2 (section 3.1), in samples; infinite if the gradient vanishes in its noise.

    `sqr` is mu^2, the squared norm of the mean gradient, and `var` sigma^2, its variance with batch m0.

    Raises:
        GoodputError: not finite, below 0, or both 0, from which nothing follows.
    """
    if not (0 <= sqr < math.inf and 0 <= var < math.inf):
        raise GoodputError(
            f"gradient statistics mu^2 = {sqr}, sigma^2 = {var}: both are finite and 0 or more"
        )
    if sqr == var == 0:
        raise GoodputError("gradient statistics are both 0: nothing follows from gradients that vanish")
    return initial * var / sqr if sqr > 0 else math.inf


def efficiency(phi: Numbers, initial: int, batch: Numbers) -> Floats:
    """EFFICIENCY (equation 7): progress per sample with global batch M, relative to m0."""
    noise = np.minimum(phi, AS_GOOD_AS_INFINITE)
    return np.asarray((noise + initial) / (noise + np.asarray(batch, float)))


def gain(phi: float, initial: int, batch: Numbers) -> Floats:
    """AdaScale's r (equation 5): how many steps with m0 a step with M counts; scales the learning rate."""
    return np.asarray(efficiency(phi, initial, batch) * np.asarray(batch, float) / initial)


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Batches to choose from for numbers of workers, as arrays of shape (candidates, *workers).

    `batch` of a worker (m), its `accumulation` (s), the `total` M, and `speed` in samples/s, 0 where this
    number of workers cannot have it.
    """

    batch: npt.NDArray[np.int64]
    accumulation: npt.NDArray[np.int64]
    total: npt.NDArray[np.int64]
    speed: Floats


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """The best batches for numbers of workers (equation 13), as arrays of one shape.

    `goodput` in samples of m0 per second, 0 where the workers cannot be used; `batch` of a worker (m),
    and its `accumulation` (s).
    """

    goodput: Floats
    batch: npt.NDArray[np.int64]
    accumulation: npt.NDArray[np.int64]


@dataclass(frozen=True)
class GoodputModel:
    """GOODPUT of a trainer (equation 6): its speeds, its batches and its gradient noise scale in samples.

    Without a noise scale nothing is known of larger batches: then throughput decides, with the smallest batch
    that the workers can share, and `basis` says so. Beyond the most workers that were `seen`, more are
    believed to slow nothing down (prior-driven exploration, section 4.1).

    Raises:
        GoodputError: a noise scale that is NaN or below 0.
    """

    system: IterationTimes
    limits: BatchLimits
    phi: float | None
    seen: float = math.inf

    def __post_init__(self) -> None:
        if self.phi is not None and not self.phi >= 0:
            raise GoodputError(f"the gradient noise scale is {self.phi}; it must be 0 or more, or unknown")

    def throughput(
        self, nodes: Numbers, workers: Numbers, batch: Numbers, accumulation: Numbers = 0
    ) -> Floats:
        """Samples/s (equation 8): M / T_iter with M = K m (s + 1)."""
        total = np.asarray(workers) * np.asarray(batch) * (np.asarray(accumulation) + 1)
        seen = np.minimum(workers, self.seen)
        return np.asarray(total / self.system.iteration_time(nodes, seen, batch, accumulation))

    def goodput(self, nodes: Numbers, workers: Numbers, batch: Numbers, accumulation: Numbers = 0) -> Floats:
        """Samples of m0 per second (equation 6): throughput times efficiency."""
        speed = self.throughput(nodes, workers, batch, accumulation)
        if self.phi is None:
            return speed
        total = np.asarray(workers) * np.asarray(batch) * (np.asarray(accumulation) + 1)
        return np.asarray(speed * efficiency(self.phi, self.limits.initial, total))

    def best(self, nodes: Numbers, workers: Numbers) -> BatchChoice:
        """The batches of highest goodput on `workers` workers of `nodes` nodes, of those of `batches`.

        Raises:
            GoodputError: no worker, no node, or more nodes than workers.
        """
        of = self.options(nodes, workers)
        found = (
            of.speed if self.phi is None else of.speed * efficiency(self.phi, self.limits.initial, of.total)
        )
        best = np.argmax(found, axis=0)[np.newaxis]
        return BatchChoice(*(np.take_along_axis(x, best, 0)[0] for x in (found, of.batch, of.accumulation)))

    def options(self, nodes: Numbers, workers: Numbers) -> BatchOptions:
        """The batches from which `best` chooses; the same for every noise scale.

        Raises:
            GoodputError: as `best`.
        """
        nodes, workers = np.broadcast_arrays(np.asarray(nodes), np.asarray(workers))
        if not np.all((nodes >= 1) & (nodes <= workers)):
            raise GoodputError(f"{workers} workers on {nodes} nodes; each node has one or more")
        sizes = (tuple(nodes.ravel().tolist()), tuple(workers.ravel().tolist()), workers.shape)
        noiseless = replace(self, phi=None if self.phi is None else 0.0)
        return _options(noiseless, *sizes)

    @cached_property
    def alone(self) -> float:
        """The goodput of one worker with its best batch: what speed-ups are relative to."""
        return float(self.best(1, 1).goodput)

    def speedup(self, nodes: Numbers, workers: Numbers) -> Floats:
        """SPEEDUP (equation 15): the best goodput over that of one worker.

        Raises:
            GoodputError: as `best`, or one worker alone cannot hold any batch.
        """
        if self.alone <= 0:
            raise GoodputError(f"no batch within {self.limits} suits a single worker")
        return np.asarray(self.best(nodes, workers).goodput / self.alone)


@lru_cache(maxsize=256)
def _options(
    model: GoodputModel, nodes: tuple[int, ...], workers: tuple[int, ...], shape: tuple[int, ...]
) -> BatchOptions:
    """The `batches` of `workers` workers.

    The noise changes with each epoch; all this stays, for every trainer of a program.
    """
    n, k = (np.array(sizes).reshape(shape) for sizes in (nodes, workers))
    batch, accumulation, possible = batches(model.limits, k, 1 if model.phi is None else CANDIDATES)
    speed = np.where(possible, model.throughput(n, k, batch, accumulation), 0.0)
    return BatchOptions(batch, accumulation, k * batch * (accumulation + 1), speed)


def batches(
    limits: BatchLimits, workers: Numbers, candidates: int = CANDIDATES
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Batches of a worker, accumulation steps, which are possible; each of shape (candidates, *workers).

    Global batches in geometric steps from the least to the most, and those that fill the memory, each with
    the fewest accumulation steps that fit it. A single worker whose batch is above m0 accumulates at least
    once: gradient statistics need two gradients of a step.
    """
    workers = np.asarray(workers)
    least = np.maximum(limits.initial, limits.local_least * workers)
    total = np.geomspace(np.minimum(least, limits.most), limits.most, candidates)
    if candidates > 1:
        full = np.multiply.outer(FULL, workers * limits.local_most)
        total = np.concatenate([total, np.clip(full, np.minimum(least, limits.most), limits.most)])
    return (*split(limits, workers, total), np.broadcast_to(least <= limits.most, total.shape))


def split(
    limits: BatchLimits, workers: Numbers, total: Numbers
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A worker's batch and accumulation steps for a global batch: rounded up, but not beyond the most."""
    workers = np.asarray(workers)
    share = np.ceil(np.asarray(total) / workers - ROUNDING)
    steps = np.ceil(share / limits.local_most - ROUNDING) - 1
    steps = np.where(
        (workers == 1) & (np.asarray(total) > limits.initial + ROUNDING), np.maximum(steps, 1), steps
    )
    batch = np.ceil(share / (steps + 1) - ROUNDING)
    batch = np.maximum(1, np.minimum(batch, limits.most // (workers * (steps + 1))))
    return batch.astype(np.int64), steps.astype(np.int64)
