"""Measures a run's steps: their gradients' noise and their times, until somebody reads them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from bftrainer.elastic.adaptive.batch import LiveBatch
from bftrainer.elastic.adaptive.gradients import Gradients, Preconditioner, dense, squared_norm
from bftrainer.elastic.adaptive.noise import NoiseEstimate, of_replicas, of_two
from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.state.training_state import Stateful
from bftrainer.elastic.train.average import Averaging
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.elastic.train.trained import Trained

EVERY = 8
"""The noise of every eighth step is measured: it changes slowly, and to measure it costs memory traffic."""
PART = "batch that adapts"
"""The name of the batch among the parts of the training state; no part of a script can have it."""


@dataclass(frozen=True, slots=True)
class _Record:
    """Numbers of one step, on their device yet, and the samples that they are of.

    Numbers are squared norms of two gradients, what a scaler had multiplied each by, and the squared norm of
    their difference where they are of one process.

    `is_part`: the first is what the second, a whole step's, had of its first half.
    """

    numbers: torch.Tensor
    ranks: int
    first: float
    second: float
    is_part: bool = False

    def estimate(self, numbers: list[float]) -> NoiseEstimate:
        """Computes the estimate from the numbers, once they are here."""
        one, other, scale_a, scale_b, *difference = numbers
        if not (scale_a and scale_b):  # a scaler that overflows at every step has made it 0
            return NoiseEstimate(math.nan, math.nan, 0.0)
        aa, bb = one / scale_a**2, other / scale_b**2
        if not difference:
            return of_replicas(aa, bb, self.ranks, self.second)
        # of gradients that were scaled otherwise, the difference says nothing
        ab = (aa + bb - difference[0] / scale_b**2) / 2 if scale_a == scale_b else math.nan
        if not self.is_part:
            return of_two(aa, bb, ab, self.first, self.second)
        rest, whole = self.second, self.first + self.second  # a: its part of the whole step's mean, b
        up = whole / self.first, whole / rest
        return of_two(
            up[0] ** 2 * aa,
            up[1] ** 2 * (bb - 2 * ab + aa),
            up[0] * up[1] * (ab - aa),
            self.first,
            rest,
        )


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Medians over some steps, in s: from step to step, and of computing one micro-batch's gradient."""

    steps: int
    iteration_s: float
    gradient_s: float | None


@dataclass(slots=True)
class _Clock:
    """Begin of the present step, and times of those before."""

    begun: float | None = None
    computed: float | None = None
    iterations: list[float] = field(default_factory=list)
    gradients: list[float] = field(default_factory=list)

    def begins(self) -> None:
        now = time.perf_counter()
        if self.begun is not None and self.computed is not None:
            self.iterations.append(now - self.begun)
            self.gradients.append(self.computed)
        self.begun, self.computed = now, None

    def computes(self, passes: int) -> None:
        """All gradients of the step are there, of `passes` micro-batches."""
        if self.begun is not None:
            self.computed = (time.perf_counter() - self.begun) / passes

    def read(self, *, knows_gradients: bool) -> StepTimes | None:
        """Times measured since the last call; None if there are none."""
        found, each = self.iterations, self.gradients
        self.iterations, self.gradients = [], []
        if not found:
            return None
        gradient = statistics.median(each) if knows_gradients else None
        return StepTimes(len(found), statistics.median(found), gradient)


class StepMeasurer(StepObserver):
    """Measures noise and times. Gradients are looked at, never changed.

    Where several ranks have samples, and the run averages their gradients, the noise is what these differ by.
    Otherwise it is what the halves of a step with several micro-batches differ by, or two steps' gradients.

    Args:
        live: the run's batch, a part of the training state.
    """

    def __init__(self, trained: Trained, scaler: torch.amp.GradScaler | None, live: LiveBatch) -> None:
        ((self._name, optimizer),) = trained.optimizers.items()
        self._trained, self._scaler, self._live = trained, scaler, live
        self._conditioned = Preconditioner(optimizer)
        self._averaging: Averaging | None = None
        self._records: list[_Record] = []
        self._clock = _Clock()
        self._kept: tuple[list[torch.Tensor], torch.Tensor, float, bool] | None = None
        self._size, self._share = 1, RankShare(0, 0, 0, Position(), 0)

    def parts(self) -> Mapping[str, Stateful]:
        return {PART: self._live}

    def watch(self, averaging: Averaging) -> None:
        """Have an averaging show each rank's own gradients before they are averaged."""
        self._averaging = averaging
        averaging.watch = self._own

    def members_changed(self, size: int) -> None:
        self._size = size
        self.forget()

    def forget(self) -> None:
        """Forget what was measured so far, and not read."""
        self._records, self._kept, self._clock = [], None, _Clock()

    def read(self) -> tuple[list[NoiseEstimate], StepTimes | None]:
        """Measurements since the last call."""
        records, self._records = self._records, []
        numbers: list[float] = torch.cat([r.numbers for r in records]).tolist() if records else []
        found, at = [], 0
        for record in records:
            end = at + len(record.numbers)
            found.append(record.estimate(numbers[at:end]))
            at = end
        return found, self._clock.read(knows_gradients=self._knows_gradients)

    @property
    def _knows_gradients(self) -> bool:
        """True if the clock sees when a gradient is there: only devices are asked for it, and with exchange
        during the backward pass both are over at once."""
        on_cpu = all(p.device.type == "cpu" for p in self._trained.parameters(self._name)[:1])
        return on_cpu and (self._size == 1 or not (self._averaging and self._averaging.overlaps))

    @property
    def _is_measured(self) -> bool:
        return self._share.after.step % EVERY == 0

    @property
    def _between_ranks(self) -> bool:
        return self._averaging is not None and self._averaging.averages and self._share.ranks > 1

    def step_begins(self, share: RankShare) -> None:
        self._share = share
        self._clock.begins()

    def before_average(self, optimizer: str, part: MicroBatch) -> None:
        mine = self._share
        if part.last:
            if mine.total == self._live.batch:  # an epoch's last step tells of another size
                self._clock.computes(self._parts_until(part))
        elif self._is_measured and self._size == 1 and self._is_half(part):
            self._keep(part.stop - mine.start, is_part=True)

    def before_update(self, optimizer: str) -> None:
        if not self._conditioned.is_known:
            return
        averaging, share = self._averaging, self._share
        if self._between_ranks and averaging is not None and averaging.sums is not None:
            if not self._is_measured:
                return
            big = squared_norm(self._conditioned.apply(self._gradients()))
            scale = self._factor(big.device)
            small = averaging.sums[:1].to(big.device, copy=True)
            numbers = torch.cat([small, torch.stack([big, scale, scale])])
            self._records.append(_Record(numbers, share.ranks, 0.0, float(share.total)))
        elif self._size == 1 or (averaging is not None and not averaging.averages):
            self._compare_with_kept()

    def after_update(self, optimizer: str) -> None:
        self._conditioned.stepped()

    def step_ends(self, *, is_whole: bool) -> None:
        if not is_whole:
            self.forget()

    def _own(
        self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None], weight: float
    ) -> None:
        """This rank's own gradients, or some of them, about to be averaged."""
        averaging = self._averaging
        if averaging is None or averaging.sums is None or not (self._between_ranks and weight):
            return
        if self._conditioned.is_known and self._is_measured:
            with torch.no_grad():
                norm = squared_norm(self._conditioned.apply(dense(parameters, gradients)))
                averaging.sums[:1] += (weight * norm).to(averaging.sums.device)

    def _compare_with_kept(self) -> None:
        """One process: two gradients, neither of which was averaged with others' since."""
        kept, self._kept = self._kept, None
        if not self._is_measured:
            has_halves = self._size == 1 and self._share.size > self._live.at_once
            if (self._share.after.step + 1) % EVERY == 0 and not has_halves:
                self._keep(self._share.total, is_part=False)
            return
        gradients = self._gradients()
        if kept is not None and len(kept[0]) == len(gradients):
            before, scale, samples, is_part = kept
            old, now = self._conditioned.apply_to_both(before, gradients)
            aa, bb = squared_norm(old), squared_norm(now)
            if now:
                torch._foreach_sub_(old, now)
            numbers = torch.stack([aa, bb, scale, self._factor(aa.device), squared_norm(old)])
            rest = self._share.total - (samples if is_part else 0)
            self._records.append(_Record(numbers, 1, samples, float(rest), is_part))

    def _keep(self, samples: float, *, is_part: bool) -> None:
        with torch.no_grad():
            gradients = [g.detach().clone() for _, g in self._gradients()]
        self._kept = (
            gradients,
            self._factor(gradients[0].device if gradients else None),
            float(samples),
            is_part,
        )

    def _gradients(self) -> Gradients:
        parameters = self._trained.parameters(self._name)
        return dense(parameters, [p.grad for p in parameters])

    def _factor(self, device: torch.device | None) -> torch.Tensor:
        one = torch.ones((), device=device)
        return one if self._scaler is None else self._scaler.scale(one)

    def _is_half(self, part: MicroBatch) -> bool:
        mine = self._share
        middle = (mine.start + mine.stop) / 2
        return part.start < middle <= part.stop

    def _parts_until(self, part: MicroBatch) -> int:
        """The micro-batches of the step, as they have about one size."""
        return max(1, round(self._share.size / max(1, part.stop - part.start)))
