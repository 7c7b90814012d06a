"""An experiment, stage by stage: trials train for a number of iterations, then the worst end.

The stages are known before the search begins, so that they can be planned. Misra et al., "RubberBand"
(EuroSys 2021), section 3.1; successive halving is Jamieson and Talwalkar's (AISTATS 2016), Hyperband Li et
al.'s (JMLR 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.tables import WRONG_VALUE

MOST_STAGES = 64
MOST_TRIALS = 100_000


class ExperimentError(BftrainerError, ValueError):
    """These are no stages of a search. The message names the value, the bound and what to do."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A number of trials that train for `iterations` each, in addition to those of the stages before."""

    trials: int
    iterations: float

    def __post_init__(self) -> None:
        """Check both numbers.

        Raises:
            ExperimentError: one is out of its bounds.
        """
        if not 1 <= self.trials <= MOST_TRIALS:
            raise ExperimentError(_wrong("trials of a stage:", f"{self.trials:,}", f"1 to {MOST_TRIALS:,}"))
        if not 0 < self.iterations < math.inf:
            given = f"{self.iterations:g}"
            raise ExperimentError(_wrong("iterations of a stage:", given, "a number above 0"))


@dataclass(frozen=True, slots=True)
class Experiment:
    """Stages that follow each other; all trials of a stage end before the next one begins."""

    name: str
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        """Check the number of stages.

        Raises:
            ExperimentError: there is none, or there are too many.
        """
        if not 1 <= len(self.stages) <= MOST_STAGES:
            given = f"{len(self.stages)} stages"
            raise ExperimentError(_wrong(f"{self.name}:", given, f"1 to {MOST_STAGES}"))


def joined(experiments: Sequence[Experiment]) -> Experiment:
    """Several experiments one after the other, such as brackets that share the same nodes.

    Raises:
        ExperimentError: together they have too many stages.
    """
    name = experiments[0].name if len(experiments) == 1 else f"{len(experiments)} brackets"
    return Experiment(name, tuple(stage for experiment in experiments for stage in experiment.stages))


def successive_halving(
    trials: int, least: float, most: float, eta: int = 2, name: str = "halving"
) -> Experiment:
    """SHA(n, r, R, eta) as RubberBand counts it: stage k gives each trial r eta^k iterations more.

    One in `eta` trials goes on after each stage. The last stage, which is that of a single trial if `most`
    allows enough stages, brings the iterations of a trial to `most` in all.

    Raises:
        ExperimentError: a number is out of its bounds.
    """
    _check(eta, least, most)
    stages: list[Stage] = []
    left, done = trials, 0.0
    while True:
        more = least * eta ** len(stages)
        last = left == 1 or done + more >= most
        stages.append(Stage(left, most - done if last else more))
        if last:
            return Experiment(name, tuple(stages))
        done += more
        left = max(1, left // eta)


def by_rungs(trials: int, rungs: Sequence[float], eta: int, name: str = "halving") -> Experiment:
    """Successive halving by rungs: the iterations that a trial has done in all when it gets there.

    Raises:
        ExperimentError: a number is out of its bounds, or the rungs do not rise.
    """
    counts = [trials]
    for _ in rungs[1:]:
        counts.append(max(1, counts[-1] // eta))
    more = [b - a for a, b in zip((0.0, *rungs[:-1]), rungs, strict=True)]
    return Experiment(name, tuple(Stage(n, work) for n, work in zip(counts, more, strict=True)))


def hyperband(most: float, eta: int = 3, least: float = 1.0) -> tuple[Experiment, ...]:
    """The brackets of Hyperband, each one a successive halving; they may run beside each other.

    Raises:
        ExperimentError: a number is out of its bounds.
    """
    _check(eta, least, most)
    highest = int(math.log(most / least, eta) + 1e-9)
    brackets = []
    for s in range(highest, -1, -1):
        trials = math.ceil((highest + 1) / (s + 1) * eta**s)
        rungs = [most * eta ** (k - s) for k in range(s + 1)]
        brackets.append(by_rungs(trials, rungs, eta, f"bracket {s}"))
    return tuple(brackets)


def _wrong(name: str, given: object, wanted: str) -> str:
    return WRONG_VALUE.say(name=name, given=given, wanted=wanted)


def _check(eta: int, least: float, most: float) -> None:
    if eta < 2:
        raise ExperimentError(_wrong("eta:", eta, "2 or more, as one in eta trials goes on"))
    if not 0 < least <= most < math.inf:
        raise ExperimentError(_wrong("least, most:", f"{least:g}, {most:g}", "0 < least <= most"))
    if math.log(most / least, eta) > MOST_STAGES:
        given, wanted = f"{least:g}, {most:g}, {eta}", f"those that make at most {MOST_STAGES} stages"
        raise ExperimentError(_wrong("least, most, eta:", given, wanted))
