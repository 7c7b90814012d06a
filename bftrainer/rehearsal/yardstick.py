"""The yardstick of a rehearsal: how far runs in peace lie apart, by rounding and by random numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bftrainer.rehearsal.records import Key, RunRecord, distance

LEAST_EPS = 512.0
"""Units of precision up to which differences are rounding, whatever the undisturbed runs show."""
LEAST_FAR = 0.05
"""Bound of that with few digits, as of bfloat16: a wrong factor lies further."""
ROUNDINGS = 20.0
"""Times the distance of one run with rounded gradients that another order of sums may cause."""
NOISES = 4.0
"""Times the distance of one run with other random numbers that others may cause."""
EARLY = 12
"""Number of first steps whose noise counts together: which step draws a number is chance."""
BATCH_NORM = 0.5
"""Largest distance of weights where batch normalisation sees another part of the batch."""
UNSEEDED = 1e-3
"""Distance of two runs with the same seeds at their first step from which they were not seeded, unless few
digits explain it: `UNSEEDED_EPS` units of precision."""
UNSEEDED_EPS = 4.0


@dataclass(frozen=True, slots=True)
class Growth:
    """Largest distance of two runs up to a step, for each optimizer's weights."""

    steps: Mapping[int, Sequence[int]] = field(default_factory=dict)
    largest: Mapping[int, Sequence[float]] = field(default_factory=dict)

    @classmethod
    def between(cls, one: RunRecord, other: RunRecord) -> Growth:
        """Measures two runs, over the steps that both have."""
        steps: dict[int, list[int]] = {}
        largest: dict[int, list[float]] = {}
        for key, facts in one.steps.items():
            if key in other.steps:
                optimizer, step = key
                sizes = one.sizes if optimizer == 0 else ()
                apart = float(distance(facts.weights, other.steps[key].weights, sizes).max())
                before = largest.setdefault(optimizer, [])
                steps.setdefault(optimizer, []).append(step)
                before.append(max(apart, before[-1] if before else 0.0))
        return cls(steps, largest)

    def upto(self, key: Key) -> float:
        """The most up to a step; 0 where nothing is known."""
        optimizer, step = key
        index = bisect_right(self.steps.get(optimizer, ()), step)
        return self.largest[optimizer][index - 1] if index else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """Differences that another order of sums explains, and that other random numbers do. `random_samples`:
    these change the samples as well, or their order."""

    eps: float
    rounding: Growth
    noise: Growth
    batch_norm: bool = False
    random_samples: bool = False

    @classmethod
    def of(cls, alone: RunRecord, again: RunRecord | None, seed: RunRecord | None) -> Yardstick:
        """Builds it from an undisturbed run, one with rounded gradients and one with another seed."""
        norms = any("BatchNorm" in kind and "Sync" not in kind for kind in alone.kinds)
        return cls(
            eps=alone.eps or 1e-7,
            rounding=Growth.between(alone, again) if again else Growth(),
            noise=Growth.between(alone, seed) if seed else Growth(),
            batch_norm=norms,
            random_samples=seed is not None and _other_samples(alone, seed),
        )

    def allowed(self, key: Key, *, ranks: int = 1) -> float:
        """Largest distance of weights after a step, on `ranks` ranks."""
        optimizer, step = key
        noise = self.noise.upto((optimizer, max(step, EARLY)))
        noise = noise if noise > self.rounded(key) else 0.0
        slack = BATCH_NORM if self.batch_norm and ranks > 1 else 0.0
        return max(self.rounded(key), NOISES * noise, slack)

    def rounded(self, key: Key) -> float:
        """Largest distance that another order of sums alone may cause."""
        return max(min(LEAST_EPS * self.eps, LEAST_FAR), ROUNDINGS * self.rounding.upto(key))

    def is_random(self, alone: RunRecord) -> bool:
        """True if the script draws random numbers that change its weights."""
        return self.drawn(alone) > 0.0

    def drawn(self, alone: RunRecord) -> float:
        """Distance of the weights due to other random numbers; 0 where the script draws none."""
        key = (0, max(alone.length, EARLY))
        noise = self.noise.upto(key)
        return noise if noise > self.rounded(key) else 0.0


def _other_samples(one: RunRecord, other: RunRecord) -> bool:
    common = one.steps.keys() & other.steps.keys()
    return any(one.steps[key].rows != other.steps[key].rows for key in common)
