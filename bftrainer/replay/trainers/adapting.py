"""Trainers of a log's replay whose batch adapts, and whose noise changes while they learn.

They train programs that were measured, see `dedicated.programs`. Work counts in progress: in samples of the
initial batch. The engine learns of speeds, batches and noise what a daemon learns from runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bftrainer.model.trainer import AdaptingBatch, Points, Scalability, TrainerSpec
from bftrainer.performance import curve
from bftrainer.performance.curve import Floats
from bftrainer.ports import Clock, Emit
from bftrainer.replay.dedicated.phases import TrainingCourse, course_of, fixed_course_of, widest_of
from bftrainer.replay.dedicated.programs import MOST_NODES, MeasuredProgram
from bftrainer.replay.dedicated.workload import FIXED, read_jobs
from bftrainer.replay.trainers.measuring import MeasuredWindow, MeasuringLauncher
from bftrainer.replay.trainers.simulated import SimulatedTrainer
from bftrainer.replay.workload import Submission

ROUNDING_S = 1e-3
"""Seconds after a phase's end at which the next has begun, whatever is rounded."""


@dataclass(frozen=True, eq=False)
class Course:
    """A training's progress (in samples of the initial batch) over time, on each number of nodes."""

    own: TrainingCourse

    @cached_property
    def ends(self) -> Floats:
        """The progress at which phases begin and end, shape (P + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.own.phases.useful)])

    @cached_property
    def clocks(self) -> Floats:
        """Time (s) of these on each number of nodes, if held from the begin on; shape (N, P + 1)."""
        seconds = self.own.phases.seconds
        return np.concatenate([np.zeros((len(seconds), 1)), np.cumsum(seconds, axis=1)], axis=1)

    def after(self, progress: float, nodes: int, seconds: float) -> float:
        """The progress after `seconds` on `nodes` nodes."""
        clock = self.clocks[nodes - 1]
        return float(np.interp(np.interp(progress, self.ends, clock) + seconds, clock, self.ends))

    def seconds_to(self, progress: float, end: float, nodes: int) -> float:
        """Seconds from one progress to another."""
        clock = self.clocks[nodes - 1]
        return float(np.interp(end, self.ends, clock) - np.interp(progress, self.ends, clock))

    def phase(self, progress: float) -> int:
        """The phase in which it is with this progress."""
        begun = int(np.searchsorted(self.ends, progress, side="right"))
        return min(begun, len(self.ends) - 1) - 1

    @property
    def speeds(self) -> Points:
        """Its mean speed by nodes over the whole training, in progress."""
        return curve.make([(n, self.ends[-1] / clock[-1]) for n, clock in enumerate(self.clocks, start=1)])

    def told(self, nodes: int, phase: int) -> tuple[float, AdaptingBatch | None]:
        """The samples/s that its run measures in a phase, and what it says of its batch."""
        own, limits = self.own, self.own.program.limits
        speed = float(own.phases.samples[nodes - 1, phase] / own.phases.seconds[nodes - 1, phase])
        if not own.adapts:
            return speed, None
        local, accumulation = own.batches[nodes - 1, phase].tolist()
        return speed, AdaptingBatch(
            batch=nodes * own.workers * local * (accumulation + 1),
            at_once=local,
            initial=limits.initial,
            most=limits.most,
            most_at_once=limits.local_most,
            workers=own.workers,
            noise=float(own.noise[nodes - 1, phase]),
        )


def read_courses(
    path: Path, profiles: Path, gpus: int, begin: float
) -> tuple[list[Submission], list[Course]]:
    """The jobs of a workload of measured programs as trainers on nodes of `gpus` GPUs, by arrival, and their
    courses. Times of submission count from `begin`. What users configured counts for fixed programs alone.

    Raises:
        WorkloadError: no such workload.
        ProfileError: a program whose measurements do not do.
    """
    known: dict[tuple[str, int], Course] = {}

    def course(program: MeasuredProgram, batch: int) -> Course:
        key = (program.name, batch if program.name in FIXED else 0)
        if key not in known:
            most = min(MOST_NODES, widest_of(program, gpus))
            fixed = program.name in FIXED
            known[key] = Course(fixed_course_of(program, batch) if fixed else course_of(program, gpus, most))
        return known[key]

    jobs = sorted(read_jobs(path, profiles), key=lambda job: job.submitted)
    courses = [course(job.program, job.batch) for job in jobs]
    submissions = [
        Submission(
            begin + job.submitted,
            TrainerSpec(
                name=job.name,
                command=(),
                n_min=1,
                n_max=len(own.clocks),
                samples=math.ceil(own.ends[-1]),
                curve=own.speeds,
                scalability=Scalability.GIVEN,
            ),
            job.program.name,
        )
        for job, own in zip(jobs, courses, strict=True)
    ]
    return submissions, courses


@dataclass(slots=True)
class AdaptingTrainer(SimulatedTrainer):
    """A simulated trainer whose speed follows its course. `samples` are its progress."""

    course: Course | None = None

    @property
    def rate(self) -> float:
        """Progress/s now; 0 with a number of members that its spec forbids."""
        nodes, own = len(self.members), self.course
        if own is None or not self.spec.allows(nodes):
            return 0.0
        phases, phase = own.own.phases, own.phase(self.samples)
        return float(phases.useful[phase] / phases.seconds[nodes - 1, phase])

    def samples_at(self, now: float) -> float:
        """Its progress at `now`, if nothing happens to it before."""
        seconds = max(0.0, min(now, self.due) - self.clock - self._stall(now))
        if self.course is None or not seconds or not self.spec.allows(len(self.members)):
            return self.samples
        return self.course.after(self.samples, len(self.members), seconds)

    def expect(self) -> None:
        """Set `due` from what is left to do."""
        self.due = math.inf
        if self.course is not None and self.spec.allows(len(self.members)):
            left_s = self.course.seconds_to(self.samples, self.course.ends[-1], len(self.members))
            self.due = max(self.clock, self.stalled_until) + left_s

    def phase_at(self, now: float) -> int:
        """Its phase at `now`."""
        return 0 if self.course is None else self.course.phase(self.samples_at(now))

    def next_phase(self, now: float) -> float:
        """End of its phase at `now`; infinity if that is the last."""
        if self.course is None or (phase := self.phase_at(now)) + 2 >= len(self.course.ends):
            return math.inf
        end = self.course.ends[phase + 1]
        return now + self.course.seconds_to(self.samples_at(now), end, len(self.members)) + ROUNDING_S


class AdaptingLauncher(MeasuringLauncher):
    """Simulates trainers by their courses, which measure batch and noise once in each phase, too."""

    most_windows = 1

    def __init__(
        self,
        emit: Emit,
        clock: Clock,
        *,
        submissions: Sequence[Submission],
        courses: Sequence[Course],
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(emit, clock, submissions=submissions, noise=noise, seed=seed)
        self._courses = courses

    def made(self, trainer: int, spec: TrainerSpec) -> SimulatedTrainer:
        """A trainer with its course."""
        found = AdaptingTrainer.submitted(spec, self.clock.now(), self.class_of)
        found.course = self._courses[trainer - 1]
        return found

    def window(self, trainer: SimulatedTrainer, at: float) -> MeasuredWindow:
        """The measurements of a trainer at a time."""
        assert isinstance(trainer, AdaptingTrainer)  # noqa: S101
        assert trainer.course is not None  # noqa: S101
        nodes, phase = len(trainer.members), trainer.phase_at(at)
        speed, batch = trainer.course.told(nodes, phase) if trainer.rate > 0 else (0.0, None)
        return MeasuredWindow((nodes, phase), speed, batch, trainer.next_phase(at))
