"""What is left of a study that runs, how long that takes on the nodes of now, and what its deadline needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bftrainer.model.text import clock
from bftrainer.search.brackets import brackets
from bftrainer.search.plan import of_study
from bftrainer.search.plan.exact import exact
from bftrainer.search.plan.experiment import Experiment, Stage
from bftrainer.search.plan.profile import Profile
from bftrainer.search.plan.simulate import Simulator
from bftrainer.search.plan.step import of_nodes
from bftrainer.search.plan.table import tabulate
from bftrainer.search.study import StudySpec
from bftrainer.search.trial import Study, TrialStatus


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a trial is: how many rungs it has ended, its samples, whether it goes on or failed."""

    number: int
    ended: int
    samples: float
    unfinished: bool
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is left of a study.

    Attributes:
        experiment: Its stages; brackets follow each other.
        seconds: From when the study has `on` nodes; None if it cannot be done with them.
        nodes: That each stage needs to meet the deadline by as few node-hours as possible; None if there is
            no deadline, or it cannot be met.
        on: The nodes of now; where no trial fits on them, those of before, or else as many as a trial needs.
        waits: Whether the study has to wait for them.
    """

    experiment: Experiment
    seconds: float | None
    nodes: tuple[int, ...] | None
    on: int = 0
    waits: bool = False


def left(study: StudySpec, trials: Sequence[Progress]) -> Experiment | None:
    """The stages that are left of a study, with the mean of the samples that their trials still have to do.

    Trials that have not begun are left, too. None if nothing is.
    """
    stages = []
    for bracket in brackets(study):
        own = [t for t in trials if bracket.first <= t.number < bracket.first + bracket.trials]
        for rung, (begin, end) in enumerate(zip((0, *bracket.budgets), bracket.budgets, strict=False)):
            gone = sum(t.ended > rung or (t.failed and t.ended == rung) for t in own)
            missing = bracket.size(rung) - gone
            here = (t.samples for t in own if t.unfinished and t.ended == rung)
            begun = [end - samples for samples in here if begin < samples < end][: max(0, missing)]
            work = sum(begun) + (missing - len(begun)) * (end - begin)
            if missing > 0:
                stages.append(Stage(missing, work / missing))
    return Experiment(study.name, tuple(stages)) if stages else None


def progress(study: Study) -> list[Progress]:
    """How far the trials of a study are."""
    return [
        Progress(
            number=t.number,
            ended=len(t.results),
            samples=t.samples,
            unfinished=not t.status.final,
            failed=t.status is TrialStatus.FAILED,
        )
        for t in study.trials.values()
    ]


def ahead(
    study: StudySpec,
    trials: Sequence[Progress],
    nodes: int,
    deadline_s: float | None,
    *,
    most: int = 512,
    before: int = 0,
    learnt: of_study.Learnt | None = None,
) -> Ahead | None:
    """How a study goes on with `nodes`, and what a deadline in so many seconds needs of at most `most` nodes.

    `before`: so many nodes it had when it last had some. `learnt`: for what the study's trainer does
    not say. None if nothing is left, or it is not known how fast a trial is.
    """
    profile = replace(of_study.profile(study, learnt), nodes=most)
    experiment = left(study, trials)
    if experiment is None or not profile.curve:
        return None
    simulator = Simulator(experiment, profile, samples=1, held=min(nodes, most))
    needed = None
    if deadline_s is not None and deadline_s > 0:
        plan = exact(simulator, tabulate(simulator), deadline_s).plan
        needed = tuple(step.nodes for step in plan.steps) if plan else None
    spans = [(count, _seconds(simulator, profile, count)) for count in (nodes, before, profile.least)]
    on, seconds = next((span for span in spans if span[1] is not None), spans[-1])
    return Ahead(experiment, seconds, needed, on, waits=spans[0][1] is None)


def _seconds(simulator: Simulator, profile: Profile, nodes: int) -> float | None:
    steps = [of_nodes(stage, nodes, profile) if nodes else None for stage in simulator.experiment.stages]
    if not all(steps):
        return None
    return sum(simulator.means(k, step)[0] for k, step in enumerate(steps) if step)


def in_words(found: Ahead, until: float | None, unit: str = "node") -> str:
    """How a study goes on if its deadline is in so many seconds, None: never."""
    runs = sum(s.trials for s in found.experiment.stages)
    text = f"{runs} {'run' if runs == 1 else 'runs'} left"
    enough = f"{found.on} {unit if found.on == 1 else f'{unit}s'}"
    if found.waits:
        text += f", no {unit}s now"
    if found.seconds is not None:
        text += f", done in {clock(found.seconds)} " + (
            f"once it has {enough}" if found.waits else f"with {enough} as now"
        )
    if until is None:
        return text
    if late(found, until) and found.nodes is None:
        return f"{text}: too late, and so with any number of {unit}s"
    return text + _deadline(found, until, unit)


def _deadline(found: Ahead, until: float, unit: str) -> str:
    """What the deadline needs where some number of nodes meets it."""
    spare = None if found.seconds is None else until - found.seconds
    if spare is not None and spare >= 0:
        return f": on time if it has them within {clock(spare)}" if found.waits else ": on time"
    needed = f"{', '.join(map(str, found.nodes or ()))} {unit}s by stage"
    return f": on time only with {needed}" if found.waits else f": too late; on time with {needed}"


def late(found: Ahead, until: float | None) -> bool:
    """Whether a study will miss a deadline that is in so many seconds: with the nodes of now, or, while it
    has none, with any number of them."""
    if until is None or (found.seconds is not None and found.seconds <= until):
        return False
    return found.nodes is None or not found.waits
