"""The yardstick of a rehearsal: how far runs in peace lie apart, by rounding and by random numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bftrainer.rehearsal.records import Key, RunRecord, distance

LEAST_EPS = 512.0
"""Differences below so many units of precision are rounding, whatever the runs in peace show."""
LEAST_FAR = 0.05
"""With few digits, as of bfloat16, what that allows is no more than this: a wrong factor lies further."""
ROUNDINGS = 20.0
"""So many times as far as one run with rounded gradients lies, others may lie for another order of sums."""
NOISES = 4.0
"""So many times as far as one run with other random numbers lies, others may lie for theirs."""
EARLY = 12
"""In the first steps, the noise of this many counts: which step draws what is chance."""
BATCH_NORM = 0.5
"""How far weights may lie apart where batch normalisation sees another part of the batch."""
UNSEEDED = 1e-3
"""Two runs with the same seeds that lie so far apart at their first step were not seeded, unless so few
digits explain it: `UNSEEDED_EPS` units of precision."""
UNSEEDED_EPS = 4.0


@dataclass(frozen=True, slots=True)
class Growth:
    """How far two runs lie apart at most up to a step, of each optimizer's weights."""

    steps: Mapping[int, Sequence[int]] = field(default_factory=dict)
    largest: Mapping[int, Sequence[float]] = field(default_factory=dict)

    @classmethod
    def between(cls, one: RunRecord, other: RunRecord) -> Growth:
        """That of two runs, over the steps that both have."""
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
    """What another order of sums explains, and what other random numbers do. `random_samples`: these change
    the samples as well, or their order."""

    eps: float
    rounding: Growth
    noise: Growth
    batch_norm: bool = False
    random_samples: bool = False

    @classmethod
    def of(cls, alone: RunRecord, again: RunRecord | None, seed: RunRecord | None) -> Yardstick:
        """That of a script, from its run in peace, one with rounded gradients and one with another seed."""
        norms = any("BatchNorm" in kind and "Sync" not in kind for kind in alone.kinds)
        return cls(
            eps=alone.eps or 1e-7,
            rounding=Growth.between(alone, again) if again else Growth(),
            noise=Growth.between(alone, seed) if seed else Growth(),
            batch_norm=norms,
            random_samples=seed is not None and _other_samples(alone, seed),
        )

    def allowed(self, key: Key, *, ranks: int = 1) -> float:
        """How far weights may lie apart after a step, on so many ranks."""
        optimizer, step = key
        noise = self.noise.upto((optimizer, max(step, EARLY)))
        noise = noise if noise > self.rounded(key) else 0.0
        slack = BATCH_NORM if self.batch_norm and ranks > 1 else 0.0
        return max(self.rounded(key), NOISES * noise, slack)

    def rounded(self, key: Key) -> float:
        """How far they may lie apart for another order of sums alone."""
        return max(min(LEAST_EPS * self.eps, LEAST_FAR), ROUNDINGS * self.rounding.upto(key))

    def is_random(self, alone: RunRecord) -> bool:
        """Whether the script draws random numbers while it trains, by which its weights change."""
        return self.drawn(alone) > 0.0

    def drawn(self, alone: RunRecord) -> float:
        """How far other random numbers have led the weights; 0 where the script draws none."""
        key = (0, max(alone.length, EARLY))
        noise = self.noise.upto(key)
        return noise if noise > self.rounded(key) else 0.0


def _other_samples(one: RunRecord, other: RunRecord) -> bool:
    common = one.steps.keys() & other.steps.keys()
    return any(one.steps[key].rows != other.steps[key].rows for key in common)
