"""Delays of main jobs with bftrainer, beside the differences of two runs without it. Pure.

Three runs of the same jobs make a pair: `without`, `again` (without, once more) and `with`. Jobs are compared
one by one, as they are the same; what the two runs without differ by is noise of the batch
system and of the machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.testbeds.errors import TestbedError
from benchmarks.testbeds.runs import MainRun

WITHOUT, AGAIN, WITH = MODES = ("without", "again", "with")
RESAMPLES = 2000
CONFIDENCE = 0.95
FEWEST = 3
"""Jobs that an interval needs at least."""
LATE_S = 1.0
"""Delay (s) against both runs without us from which a job has to be explained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWaits:
    """The waits of one job, or one task of an array, in each run (s)."""

    number: int
    task: int
    kind: str
    without: float
    again: float
    with_: float

    @property
    def later(self) -> float:
        """Return how much later than in the mean of the two runs without it started, in s."""
        return self.with_ - (self.without + self.again) / 2

    @property
    def beyond(self) -> float:
        """Return how much later than in the slower of the two runs without it started, in s."""
        return self.with_ - max(self.without, self.again)


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with a bootstrap interval (95 %); `low` and `high` are None for too few jobs."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of how much longer jobs waited, in s.

    Attributes:
        later: With, compared with without; the mean of what the two runs without give.
        noise: The same between the two runs without, in the direction in which it is larger.
        beyond: `later` less `noise`.
    """

    later: Figure
    noise: Figure
    beyond: Figure

    @property
    def is_noise(self) -> bool:
        """Return whether `later` cannot be told from noise: its interval reaches down to it."""
        low = self.later.value if self.later.low is None else self.later.low
        return low <= self.noise.value


def _median(before: Any, after: Any, axis: int = -1) -> Any:
    """By how much the median of the waits is larger. The median of the jobs' differences would follow the
    moment of its scheduling interval at which the batch system was when the load began, the same for all
    jobs of a run.
    """
    return np.median(after, axis=axis) - np.median(before, axis=axis)


def _mean(before: Any, after: Any, axis: int = -1) -> Any:
    return np.mean(after - before, axis=axis)


def _p99(before: Any, after: Any, axis: int = -1) -> Any:
    return np.percentile(after - before, 99, axis=axis)


FIGURES: Mapping[str, Callable[..., Any]] = {"median": _median, "mean": _mean, "p99": _p99}
"""Extra waits of jobs in a second run against a first: of the median of waits, and job by job."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The results of three runs of the same jobs.

    Attributes:
        seed: The seed of their load.
        jobs: All that started in each run.
        figures: Name (median, mean, p99) -> difference, of all jobs.
        kinds: Kind -> its number of jobs, and its median and mean.
        missing: Those that did not start in each of the three runs: (number, task).
    """

    seed: int
    jobs: tuple[JobWaits, ...]
    figures: Mapping[str, Difference]
    kinds: Mapping[str, tuple[int, Mapping[str, Difference]]]
    missing: tuple[tuple[int, int], ...]

    def late(self) -> list[JobWaits]:
        """The jobs that have to be explained, the latest first."""
        found = [job for job in self.jobs if job.beyond > LATE_S]
        return sorted(found, key=lambda job: -job.beyond)


def waits_of(
    runs: Mapping[str, Iterable[MainRun]],
) -> tuple[tuple[JobWaits, ...], tuple[tuple[int, int], ...]]:
    """Return the jobs that started in all three runs, by number and task, and which did not."""
    by_job = {mode: {(run.number, run.task): run for run in runs[mode]} for mode in MODES}
    every = sorted(set().union(*by_job.values()))
    found, missing = [], []
    for key in every:
        each = {mode: by_job[mode].get(key) for mode in MODES}
        waited = {mode: None if run is None else run.wait_s for mode, run in each.items()}
        first, second, third = (waited[mode] for mode in MODES)
        if first is None or second is None or third is None:
            missing.append(key)
            continue
        kind = next(run.kind for run in each.values() if run is not None)
        number, task = key
        found.append(JobWaits(number=number, task=task, kind=kind, without=first, again=second, with_=third))
    return tuple(found), tuple(missing)


def compare(seed: int, runs: Mapping[str, Iterable[MainRun]]) -> Pair:
    """Compare the three runs of a load.

    Raises:
        TestbedError: no main job has started in all three.
    """
    jobs, missing = waits_of(runs)
    if not jobs:
        raise TestbedError(
            f"seed {seed}: no main job has started in all three runs; see the logs beside them"
        )
    kinds = {}
    for kind in sorted({job.kind for job in jobs}):
        own = [job for job in jobs if job.kind == kind]
        kinds[kind] = (len(own), {name: difference(own, name) for name in ("median", "mean")})
    figures = {name: difference(jobs, name) for name in FIGURES}
    return Pair(seed, jobs, figures, kinds, missing)


def difference(jobs: Sequence[JobWaits], name: str) -> Difference:
    """Return one figure of at least one job, with its intervals."""
    figure = FIGURES[name]

    def later(a: Any, b: Any, w: Any, axis: int = -1) -> Any:
        """Return how much longer jobs waited in `w` than in `a` and in `b`, in the mean of both."""
        return (figure(a, w, axis=axis) + figure(b, w, axis=axis)) / 2

    def noise(a: Any, b: Any, w: Any, axis: int = -1) -> Any:
        """Return how much longer they waited in `b` than in `a`, or in `a` than in `b` if that is more."""
        return np.maximum(figure(a, b, axis=axis), figure(b, a, axis=axis))

    def beyond(a: Any, b: Any, w: Any, axis: int = -1) -> Any:
        """Return how much the former is more than the latter."""
        return later(a, b, w, axis=axis) - noise(a, b, w, axis=axis)

    columns = tuple(np.array([getattr(job, mode) for job in jobs]) for mode in ("without", "again", "with_"))
    return Difference(*(_figure(columns, statistic) for statistic in (later, noise, beyond)))


def _figure(columns: tuple[Any, ...], statistic: Callable[..., Any]) -> Figure:
    value = float(statistic(*columns))
    if len(columns[0]) < FEWEST:
        return Figure(value)
    found = stats.bootstrap(
        columns,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        random_state=0,
    ).confidence_interval
    return Figure(value, float(found.low), float(found.high))


@dataclass(frozen=True, slots=True)
class OverPairs:
    """A figure over several pairs: its median, and the worst pair's value with its seed."""

    median: float
    worst: float
    seed: int


def over_pairs(pairs: Sequence[Pair], name: str, part: str) -> OverPairs:
    """Return the figure `name` of all pairs; `part` is `later`, `noise` or `beyond`."""
    values = {pair.seed: float(getattr(pair.figures[name], part).value) for pair in pairs}
    worst = max(values, key=lambda seed: values[seed])
    return OverPairs(statistics.median(values.values()), values[worst], worst)
