"""One job of a dedicated cluster as it trains, between two decisions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby

import numpy as np
import numpy.typing as npt

from bftrainer.performance import goodput_fit, goodput_times
from bftrainer.performance.goodput import BatchLimits, GoodputModel, gain, noise_scale, split
from bftrainer.performance.goodput_fit import IterationTime
from bftrainer.performance.goodput_times import MeasuredSystem
from bftrainer.replay.dedicated.programs import MeasuredProgram, Placement
from bftrainer.replay.dedicated.workload import SubmittedJob

Nodes = tuple[int, ...]
"""The node of each worker, those of a node in a row."""
TRAINING_ON = 0.25
"""Share of the time until new workers are ready that a change costs where others train on meanwhile."""
SURPRISE = 0.02
"""A time that is off the model by less is no reason to fit it again."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Times that a job stands still when its workers change, in s.

    `init_s`: until new workers are ready. `stall_up_s`, `stall_down_s`: all stand still when these join, or
    when others leave. Where a worker stays on its node, the job trains on meanwhile with those that stay.
    A job of which none stays restarts, after `init_s` and `stall_up_s`; so does each if not `rescales`.
    """

    init_s: float = 30.0
    stall_up_s: float = 0.0
    stall_down_s: float = 0.0
    rescales: bool = False

    @property
    def start_s(self) -> float:
        """Until a job trains that had no worker, or keeps none."""
        return self.init_s + self.stall_up_s

    @property
    def change_s(self) -> float:
        """The training time that decisions take a change to cost: of those that rescale, some train on."""
        return self.start_s * (TRAINING_ON if self.rescales else 1.0)


PUBLISHED = Pauses()
"""A job whose workers move restarts, for 30 s, at its first start, too (section 5.3)."""


def kept(before: Nodes, after: Nodes) -> Nodes:
    """The nodes of workers that stay where they are."""
    stay = Counter(before) & Counter(after)
    return tuple(node for node in dict.fromkeys(after) for _ in range(stay[node]))


def placed(nodes: Nodes) -> Placement:
    """Workers on each node."""
    return tuple(len(list(group)) for _, group in groupby(nodes))


@dataclass
class Profile:
    """The times that jobs of one program have measured, and the model that follows them.

    One job has it alone, or all jobs of the program share it. `first_phi`: the noise scale (samples) that
    a job began with.
    """

    seen: dict[tuple[int, int, int], IterationTime] = field(default_factory=dict)
    system: MeasuredSystem | None = None
    first_phi: float | None = None

    def add(self, nodes: int, workers: int, batch: int, step: float, sync: float) -> None:
        """Take in a measured time (s); the model follows where it did not expect that."""
        if (nodes, workers, batch) in self.seen:
            return
        placed_anew = all((n, k) != (nodes, workers) for n, k, _ in self.seen)
        time = IterationTime(nodes, workers, batch, step, step - sync)
        self.seen[nodes, workers, batch] = time
        if self.system is not None and not placed_anew and len(self.seen) > 2:
            expected = float(self.system.iteration_time(nodes, workers, batch))
            if abs(expected / step - 1) < SURPRISE:
                return
        seen = tuple(self.seen.values())
        before = None if self.system is None else self.system.fitted
        self.system = goodput_times.measured(goodput_fit.fit(seen, before), seen)

    def model(self, limits: BatchLimits, phi: float | None) -> GoodputModel | None:
        """The goodput of a job with this noise scale; None where nothing was measured."""
        if self.system is None or phi is None:
            return None
        return GoodputModel(self.system, limits, phi, max(workers for _, workers, _ in self.seen))

    def most_workers(self, cap: int) -> int:
        """The most workers to ask for: twice the most that were measured."""
        return goodput_fit.most_workers(tuple(self.seen.values()), cap)


def filling(limits: BatchLimits, workers: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The batch of each of `workers` workers that fills their memory, within the largest global batch."""
    return np.asarray(np.minimum(limits.local_most, limits.most // np.asarray(workers)), np.int64)


@lru_cache(maxsize=4096)
def best_batch(model: GoodputModel, nodes: int, workers: int) -> tuple[int, int]:
    """The best batch of a worker and its accumulation steps; a model stays for many ticks."""
    best = model.best(nodes, workers)
    return int(best.batch), int(best.accumulation)


@dataclass
class RunningJob:
    """A job from its submission to its end.

    `workers`, `batch`: held fixed, or None where a policy chooses. `fills`: workers take as much as their
    memory holds, whatever it is worth. `nodes`: of the workers that train, empty while it
    waits; `joining`: all nodes, until `joining_s` have gone by and the new ones are ready.
    `progress`: steps of m0 done. `slowed`: the part of its speed that others on its nodes take.
    `gpu_s`: GPU-seconds had. `ended`: when, in s.
    """

    job: SubmittedJob
    profile: Profile
    workers: int | None = None
    batch: int | None = None
    fills: bool = False
    nodes: Nodes = ()
    joining: Nodes = ()
    joining_s: float = 0.0
    local: int = 0
    accumulation: int = 0
    pause_s: float = 0.0
    stall_up_s: float = 0.0
    epoch: int = 0
    progress: float = 0.0
    gpu_s: float = 0.0
    starts: int = 0
    ended: float | None = None
    phi: float | None = None
    speed: float = 0.0
    slowed: float = 0.0
    _model: GoodputModel | None = None

    @property
    def placement(self) -> Placement:
        """Workers that train, on each of their nodes."""
        return placed(self.nodes)

    @property
    def program(self) -> MeasuredProgram:
        """The program that it runs."""
        return self.job.program

    @property
    def remaining(self) -> float:
        """The steps of m0 that are left, as its epochs are declared."""
        return self.program.progress(self.program.epochs) - self.progress

    @property
    def model(self) -> GoodputModel | None:
        """Its goodput by what it has measured; before that, by what others have that share its profile."""
        if self._model is None and self.batch is None:
            self._model = self.profile.model(self.program.limits, self.profile.first_phi)
        return self._model

    @property
    def speed_alone(self) -> float:
        """Steps of m0 per second on one worker, as far as it has found out; 0 if it has not."""
        if self.model is not None:
            return self.model.alone / self.program.limits.initial
        return self.speed if self.workers == 1 else 0.0

    def place(self, nodes: Nodes, pauses: Pauses = PUBLISHED) -> None:
        """Give it workers on other nodes, or none."""
        stay = kept(self.nodes, nodes) if pauses.rescales else ()
        leave = len(stay) < len(self.nodes)
        self.joining = ()
        self.nodes = stay or nodes
        if not nodes:
            return
        if not stay:
            self.pause_s = pauses.start_s
        elif leave:
            self.pause_s = max(self.pause_s, pauses.stall_down_s)
        if stay and len(stay) < len(nodes):
            self.joining, self.joining_s, self.stall_up_s = nodes, pauses.init_s, pauses.stall_up_s
        self.starts += 1
        self.choose_batch()

    def choose_batch(self) -> None:
        """Choose its workers' batch again: the fixed one split, or the best by what it has measured."""
        nodes, workers = len(self.placement), sum(self.placement)
        limits = self.program.limits
        if self.fills and self.batch is None:
            self.local, self.accumulation = int(filling(limits, workers)), 0
            return
        if self.batch is None and self.model is not None:
            self.local, self.accumulation = best_batch(self.model, nodes, workers)
            return
        total = self.batch or max(limits.initial, limits.local_least * workers)
        local, accumulation = split(limits, workers, total)
        self.local, self.accumulation = int(local), int(accumulation)

    def advance(self, begin: float, seconds: float) -> None:
        """Train from `begin` on, both in s: to the end of the time, or of the job.

        Within an epoch the speed is constant; it measures times and gradients as it goes.
        """
        if not self.nodes or self.ended is not None:
            return
        if self.joining:
            alone = min(self.joining_s, seconds)
            self._train(begin, alone)
            self.joining_s -= alone
            if self.joining_s > 0 or self.ended is not None:
                return
            begin, seconds = begin + alone, seconds - alone
            self.nodes, self.joining = self.joining, ()
            self.pause_s += self.stall_up_s
            self.choose_batch()
        self._train(begin, seconds)

    def _train(self, begin: float, seconds: float) -> None:
        """Train with the workers that it has."""
        pause = min(self.pause_s, seconds)
        self.pause_s -= pause
        now, left = begin + pause, seconds - pause
        while left > 0 and self.ended is None:
            rate = self._measured_rate()
            next_epoch = self.program.progress(self.epoch + 1)
            if self.progress + rate * left < next_epoch:
                self.progress += rate * left
                now, left = now + left, 0.0
            else:
                took = round((next_epoch - self.progress) / rate)
                self.epoch, self.progress = self.epoch + 1, next_epoch
                now, left = now + took, left - took
                if self.epoch == self.program.epochs:
                    self.ended = now
            self.choose_batch()
        self.gpu_s += (now - begin) * len(self.joining or self.nodes)

    def _measured_rate(self) -> float:
        """Steps of m0 per second, now; takes in the times and gradients that it measures meanwhile."""
        nodes, workers = len(self.placement), sum(self.placement)
        limits = self.program.limits
        total = workers * self.local * (self.accumulation + 1)
        step, sync = self.program.times(self.placement, self.local)
        phi = noise_scale(limits.initial, *self.program.gradients(total, self.epoch))
        self.profile.add(nodes, workers, self.local, step, sync)
        model = self._model
        if self.batch is None and (phi != self.phi or not model or model.system is not self.profile.system):
            self._model = self.profile.model(limits, phi)
        if self.epoch == 0:
            self.profile.first_phi = phi
        self.phi = phi
        self.speed = float(gain(phi, limits.initial, total)) / (step + self.accumulation * (step - sync))
        return self.speed * (1 - self.slowed)
