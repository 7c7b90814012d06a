"""The rest of a study that runs: how long it takes on the present nodes, and what its deadline needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bftrainer.model.text import duration
from bftrainer.search.brackets import Bracket, brackets
from bftrainer.search.plan import of_study
from bftrainer.search.plan.model.experiment import MOST_STAGES, Experiment, Stage
from bftrainer.search.plan.model.profile import ExperimentProfile, Floats
from bftrainer.search.plan.model.simulate import Simulator
from bftrainer.search.plan.pools.execution import BracketRun, Execution, Supply
from bftrainer.search.study import StoppingKind, StudySpec
from bftrainer.search.trial import Study, TrialStatus

FINE = 512
"""Trials of a stage that are looked at one by one."""
LAST_SAMPLES = 1.0
"""Samples left of a trial that trains and has reported its last sample."""
SIZES = 24
"""Numbers of nodes that are tried at a time for a deadline."""


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """Progress of a trial.

    Attributes:
        ended: How many rungs it has ended.
        samples: That it has trained.
        goes_on: Whether it trains, or is to; not while it is paused at a rung.
        lost: It has ended, or is being ended, on its way to a rung: it failed, or the median or its user
            stopped it.
    """

    number: int
    ended: int
    samples: float
    goes_on: bool
    lost: bool = False


@dataclass(frozen=True, slots=True)
class RemainingStudy:
    """The rest of a study: the stages of all brackets, and which of them follow each other."""

    experiment: Experiment
    brackets: tuple[BracketRun, ...]


@dataclass(frozen=True, slots=True)
class Ahead:
    """The forecast of a study.

    Attributes:
        experiment: Its stages.
        seconds: From when the study has `on` nodes; None if it cannot be done with them.
        nodes: The fewest with which it meets the deadline; None if there is no deadline, or none do.
        on: The nodes of now; where no trial fits on them, those of before, or else as many as a trial needs.
        waits: Whether the study has to wait for them.
    """

    experiment: Experiment
    seconds: float | None
    nodes: int | None
    on: int = 0
    waits: bool = False


def left(study: StudySpec, trials: Sequence[TrialProgress]) -> RemainingStudy | None:
    """Return what is left of a study, trial by trial. Trials that have not begun are left, too. None if
    nothing is, or more stages than can be planned.

    A trial that trains goes on at once, at whatever rung it is: those of ASHA need not wait for the others.
    A rung has no more trials than the one before lets through, and of ASHA's all that were promoted to it.
    """
    stages: list[Stage] = []
    found = []
    for bracket in brackets(study):
        own = [t for t in trials if bracket.first <= t.number < bracket.first + bracket.trials]
        begun: list[float] = []
        lowest = 0
        rest: list[Stage] = []
        due = bracket.trials
        for rung, (begin, end) in enumerate(zip((0, *bracket.budgets), bracket.budgets, strict=False)):
            here = [t for t in own if t.goes_on and t.ended == rung]
            lost = sum(t.lost and t.ended == rung for t in own)
            gone = sum(t.ended > rung for t in own) + lost
            due = max(due, gone + len(here))
            missing = due - gone
            train = [max(LAST_SAMPLES, end - t.samples) for t in here if begin < t.samples]
            begun += train
            if rest and missing > len(train):
                rest.append(Stage(missing - len(train), end - begin))
            elif not rest and missing > 0:
                rest.append(Stage(missing, end - begin))
                lowest = missing - len(train)  # trials of the first stage that have not begun
            due = _promoted(study, bracket, rung + 1, due - lost)
        if rest:
            begun = begun[:FINE]
            rest[0] = replace(rest[0], trials=lowest + len(begun))
            places = tuple(range(len(stages), len(stages) + len(rest)))
            found.append(BracketRun(places, tuple(begun)))
            stages += rest
    if not 0 < len(stages) <= MOST_STAGES:
        return None
    return RemainingStudy(Experiment(study.name, tuple(stages)), tuple(found))


def _promoted(study: StudySpec, bracket: Bracket, rung: int, through: int) -> int:
    """Return how many trials have a part in a later rung where `through` end the one before."""
    if study.stopping.kind is StoppingKind.ASHA:
        return max(min(1, through), through // bracket.eta)
    return min(bracket.size(rung), through)


def progress(study: Study, samples: Mapping[int, int] | None = None) -> list[TrialProgress]:
    """Return how far the trials of a study are, and by `samples`, where that says more of one."""
    known = samples or {}
    found = []
    for t in study.trials.values():
        to = t.stopping or t.status
        found.append(
            TrialProgress(
                number=t.number,
                ended=len(t.results),
                samples=max(t.samples, known.get(t.number, 0)),
                goes_on=to in (TrialStatus.WAITING, TrialStatus.RUNNING),
                lost=to.final and len(t.results) <= t.rung,
            )
        )
    return found


def ahead(
    study: StudySpec,
    trials: Sequence[TrialProgress],
    nodes: int,
    deadline_s: float | None,
    *,
    most: int = 512,
    before: int = 0,
    learnt: of_study.Learnt | None = None,
) -> Ahead | None:
    """Forecast a study with `nodes`, and what a deadline in `deadline_s` needs of at most `most` nodes.

    `before`: the nodes that it had when it last had some. `learnt`: for what the study's trainer does not
    say. None if nothing is left, it is not known how fast a trial is, or a trial needs more than `most`
    nodes.
    """
    profile = replace(of_study.profile(study, learnt), nodes=most)
    rest = left(study, trials)
    if rest is None or not profile.curve or not profile.rising():
        return None
    coarse = Experiment(study.name, tuple(_coarse(stage, profile) for stage in rest.experiment.stages))
    run = Execution(Simulator(coarse, profile, samples=1), rest.brackets, Supply.none())
    spans = [(count, _seconds(run, [count])[0]) for count in (nodes, before, profile.least)]
    on, seconds = next((span for span in spans if np.isfinite(span[1])), spans[-1])
    needed = None
    if deadline_s is not None and deadline_s > 0:
        needed = _fewest(run, deadline_s, profile.least, most)
    known = float(seconds) if np.isfinite(seconds) else None
    return Ahead(rest.experiment, known, needed, on, waits=not np.isfinite(spans[0][1]))


def _coarse(stage: Stage, profile: ExperimentProfile) -> Stage:
    """The stage with at most `FINE` trials: each of them stands for several that follow each other."""
    if stage.trials <= FINE:
        return stage
    each = stage.trials / FINE
    starts = (each - 1) * profile.start.expected / profile.iteration_s(profile.least)
    return Stage(FINE, each * stage.iterations + starts)


def _seconds(run: Execution, nodes: Sequence[int]) -> Floats:
    """Return the seconds until all is done, for each number of nodes that stay."""
    found: Floats = run.run(np.zeros(len(nodes)), np.tile(np.array(nodes), (run.phases, 1)))[-1]
    return found


def _fewest(run: Execution, deadline_s: float, least: int, most: int) -> int | None:
    """The fewest nodes found with which all is done in time."""
    low, high, found = least - 1, most, None
    while high > low:  # `low` nodes are too few, and at most `high` are needed
        tried = sorted({low + round((high - low) * (i + 1) / SIZES) for i in range(SIZES)} - {low})
        enough = [n for n, s in zip(tried, _seconds(run, tried), strict=True) if s <= deadline_s]
        if not enough:
            break
        found, low = enough[0], max((n for n in tried if n < enough[0]), default=low)
        high = found if found - low > 1 else low
    return found


def in_words(found: Ahead, until: float | None, unit: str = "node") -> str:
    """Return in words how a study goes on if its deadline is in `until` seconds, None: never."""
    runs = sum(s.trials for s in found.experiment.stages)
    text = f"{runs} {'run' if runs == 1 else 'runs'} left"
    enough = f"{found.on} {unit if found.on == 1 else f'{unit}s'}"
    if found.waits:
        text += f", no {unit}s now"
    if found.seconds is not None:
        text += f", done in {duration(found.seconds)} " + (
            f"once it has {enough}" if found.waits else f"with {enough} as now"
        )
    if until is None:
        return text
    if late(found, until) and found.nodes is None:
        return f"{text}: too late, and so with any number of {unit}s"
    return text + _deadline(found, until, unit)


def _deadline(found: Ahead, until: float, unit: str) -> str:
    """Say what the deadline needs where some number of nodes meets it."""
    spare = None if found.seconds is None else until - found.seconds
    if spare is not None and spare >= 0:
        return f": on time if it has them within {duration(spare)}" if found.waits else ": on time"
    needed = f"{found.nodes} {unit if found.nodes == 1 else f'{unit}s'}"
    return f": on time only with {needed}" if found.waits else f": too late; on time with {needed}"


def late(found: Ahead, until: float | None) -> bool:
    """Return whether a study will miss a deadline in `until` seconds: with the nodes of now, or, while it has
    none, with any number of them."""
    if until is None or (found.seconds is not None and found.seconds <= until):
        return False
    return found.nodes is None or not found.waits
