"""Gradient statistics: the squared norm of the mean gradient, the variance of a sample's, and their averages.

In Pollux's terms (OSDI 2021, section 3.1) `sqr` is mu^2 and `var` is m0 sigma^2: a sample's variance, summed
over all elements. Their ratio phi, in samples, is the gradient noise scale. Estimates from a single step are
unbiased and very noisy, and may be negative: what is used are averages of each over many steps. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

SMOOTHING = 0.99
"""Part of its past that an average keeps over one initial batch of measured samples."""
ENOUGH = 1 - SMOOTHING**10
"""The weight from which on an average is used: that of 10 initial batches that were measured."""
LARGEST = 1e30
"""Above it nothing is a gradient's: training diverges. Single precision holds a little more."""
FORGETTING = 0.1
"""Weight of the past once the learning rate has changed much: the noise changes with it."""


@dataclass(frozen=True, slots=True)
class NoiseEstimate:
    """`sqr` and `var` from one step or several, which had `samples` together."""

    sqr: float
    var: float
    samples: float

    @property
    def is_usable(self) -> bool:
        """True if both are numbers, unlike where a GradScaler skips a step, or training diverges."""
        return abs(self.sqr) <= LARGEST and abs(self.var) <= LARGEST


def of_two(aa: float, bb: float, ab: float, n_a: float, n_b: float) -> NoiseEstimate:
    """Estimate from two gradients a and b, the means over `n_a` and `n_b` other samples: of halves of a step,
    or of consecutive steps. `aa`, `bb` and `ab` are their squared norms and their product."""
    return NoiseEstimate(ab, (aa - 2 * ab + bb) / (1 / n_a + 1 / n_b), n_a + n_b)


def of_replicas(small: float, big: float, ranks: int, total: float) -> NoiseEstimate:
    """Estimate from the gradients of several ranks, two or more, which share `total` samples.

    `small` is the mean of their squared norms, each weighed by its samples, and `big` that of the mean
    gradient. With such weights it does not matter that shares differ.
    """
    var = (small - big) * total / (ranks - 1)
    return NoiseEstimate(big - var / total, var, total)


@dataclass(frozen=True, slots=True)
class NoiseAverage:
    """Averages of `sqr` and `var`, weighed by samples; without the bias of those that begin at 0."""

    sqr: float = 0.0
    var: float = 0.0
    weight: float = 0.0

    def taken(self, estimate: NoiseEstimate, initial: int) -> NoiseAverage:
        """Add one estimate. Values that are not finite, as where a scaler skips a step, are left out."""
        if not estimate.is_usable:
            return self
        keep = SMOOTHING ** (estimate.samples / initial)
        weight = keep * self.weight + (1 - keep)
        part = (1 - keep) / weight
        return NoiseAverage(
            self.sqr + part * (estimate.sqr - self.sqr), self.var + part * (estimate.var - self.var), weight
        )

    def forgotten(self) -> NoiseAverage:
        """The same averages, of which less is kept as others come."""
        return NoiseAverage(self.sqr, self.var, FORGETTING * self.weight)

    @property
    def phi(self) -> float | None:
        """The gradient noise scale in samples; None: too little was seen, or the mean gradient is lost in its
        noise, from which nothing follows."""
        if self.weight < ENOUGH or self.sqr <= 0:
            return None
        return min(max(self.var, 0.0) / self.sqr, LARGEST)
