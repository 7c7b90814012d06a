"""The batch as it is now, and what it rests on: a part of the training state, the same on all nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bftrainer.elastic.adaptive.noise import NoiseAverage
from bftrainer.elastic.train.policy import Adaptive
from bftrainer.performance.goodput import gain

MOST_SIZES = 64
"""Sizes with times, at most; the first measured are dropped."""


class TimedSize(NamedTuple):
    """Size of a timed iteration: a worker's batch, computed `accumulation` times before the last one."""

    nodes: int
    workers: int
    batch: int
    accumulation: int


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of a size, in s, and how many steps they are of. `gradient_s` is 0 where it is not known."""

    iteration_s: float
    gradient_s: float
    steps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """Measurements and decision of the first rank, sent to all others: a few numbers."""

    noise: NoiseAverage
    phi: float | None
    batch: int
    at_once: int
    size: TimedSize
    timed: Timed | None

    def numbers(self) -> list[float]:
        """For the exchange, in single precision. The first is 1."""
        average, timed = self.noise, self.timed or Timed(0.0, 0.0, 0.0)
        return [
            *(1.0, average.sqr, average.var, average.weight, -1.0 if self.phi is None else self.phi),
            *(self.batch, self.at_once, *self.size, timed.iteration_s, timed.gradient_s, timed.steps),
        ]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Agreed | None:
        """The same on another rank; None: nobody has said anything."""
        if numbers[0] != 1.0:
            return None
        sqr, var, weight, phi, batch, at_once, *more = numbers[1:]
        return cls(
            noise=NoiseAverage(sqr, var, weight),
            phi=None if phi < 0 else phi,
            batch=int(batch),
            at_once=int(at_once),
            size=TimedSize(*(int(number) for number in more[:4])),
            timed=Timed(*more[4:]) if more[6] else None,
        )


NUMBERS = 14
"""Length of `Agreed.numbers`."""


class LiveBatch:
    """A step's samples and the learning rate's factor as they are now.

    Args:
        policy: the script's, or the spec's.
        most_at_once: samples that a worker computes at once, at most.
    """

    warmup_steps = 0

    def __init__(self, policy: Adaptive, most_at_once: int) -> None:
        self.policy, self.most_at_once = policy, most_at_once
        self.batch, self.at_once = policy.initial, most_at_once
        """Samples of a step over all workers, and those that a worker computes at once."""
        self.noise = NoiseAverage()
        self.phi: float | None = None
        """The last gradient noise scale that was usable, in samples; None: there was none yet."""
        self.times: dict[TimedSize, Timed] = {}
        self._present = policy.initial

    def total(self, nodes: int) -> int:
        """Samples of a step on any number of workers."""
        return self.batch

    def factor(self, nodes: int) -> float:
        """Factor on the learning rate in the present step."""
        return self.policy.factor_of(self._present, self.gain)

    def begins(self, total: int) -> None:
        """A step of `total` samples begins, or will. An epoch's last may have fewer than the initial batch:
        as for any run, it is a step like others."""
        self._present = max(total, self.policy.initial)

    @property
    def gain(self) -> float:
        """The steps with the initial batch that the step under way is worth (AdaScale's r)."""
        if self.phi is None or self._present == self.policy.initial:
            return 1.0
        return float(gain(self.phi, self.policy.initial, self._present))

    def take(self, agreed: Agreed) -> bool:
        """Take over what the first rank says. Returns whether the batch changes."""
        before = self.batch, self.at_once
        self.noise, self.phi = agreed.noise, agreed.phi
        self.batch, self.at_once = agreed.batch, agreed.at_once
        if agreed.timed is not None:
            self.times.pop(agreed.size, None)
            self.times[agreed.size] = agreed.timed
            while len(self.times) > MOST_SIZES:
                del self.times[next(iter(self.times))]
        return before != (self.batch, self.at_once)

    def state_dict(self) -> dict[str, Any]:
        """Its part of the training state."""
        return {
            "batch": self.batch,
            "at_once": self.at_once,
            "noise": [self.noise.sqr, self.noise.var, self.noise.weight],
            "phi": self.phi,
            "times": {
                ",".join(map(str, size)): [timed.iteration_s, timed.gradient_s, timed.steps]
                for size, timed in self.times.items()
            },
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` has returned, within the limits that hold now."""
        policy = self.policy
        self.batch = min(max(state_dict["batch"], policy.initial), policy.max)
        self.at_once = min(state_dict["at_once"], self.most_at_once)
        self.noise, self.phi = NoiseAverage(*state_dict["noise"]), state_dict["phi"]
        self.times = {
            TimedSize(*map(int, size.split(","))): Timed(*timed)
            for size, timed in state_dict["times"].items()
        }


def merged(before: Timed | None, new: Timed, most: float) -> Timed:
    """Times of a size with those of further steps; of what was before, `most` steps count."""
    if before is None:
        return replace(new, steps=min(new.steps, most))
    kept = min(before.steps, most)
    part = new.steps / (kept + new.steps)
    gradient = before.gradient_s + part * (new.gradient_s - before.gradient_s)
    if not before.gradient_s or not new.gradient_s:
        gradient = before.gradient_s or new.gradient_s
    iteration = before.iteration_s + part * (new.iteration_s - before.iteration_s)
    return Timed(iteration, gradient, min(kept + new.steps, most) if math.isfinite(kept) else most)
