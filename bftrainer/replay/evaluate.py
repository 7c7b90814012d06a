"""Turns a scenario into figures, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bftrainer.allocate import check_solver
from bftrainer.messages.commands.lines import NOT_WITH
from bftrainer.model.policy import Share
from bftrainer.replay import workload
from bftrainer.replay.figures import figures_of
from bftrainer.replay.inputs import load_changes, load_log, span
from bftrainer.replay.loop import NULL_OBSERVER, Simulate, replay
from bftrainer.replay.record.data import ReportData
from bftrainer.replay.record.recorder import Recorder
from bftrainer.replay.scenario import Scenario
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.trainers.measuring import MeasuringLauncher, hidden
from bftrainer.replay.workload import Submission
from bftrainer.spec.counted import counted


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of a scenario.

    Attributes:
        figures: See `figures.figures_of`.
        report_data: What a report needs; None if that was not asked for.
        fallbacks: Why the allocator that was asked for did not decide, the most frequent reason first.
    """

    figures: dict[str, object]
    report_data: ReportData | None
    fallbacks: tuple[str, ...] = ()


def evaluate(
    scenario: Scenario, progress: Callable[[float], None] = lambda done: None, *, name: str | None = None
) -> Evaluation:
    """Replay a scenario; with a `name`, also give what a report under that name needs.

    `progress` takes the share done, 0 to 1.

    Raises:
        LogError, WorkloadError: unreadable input, or a span outside of the log.
        SolverError: the allocator is `milp`, and its solver does not work.
    """
    settings = scenario.settings.engine
    if settings.allocator == "milp":  # where `auto` misses the solver, its fall-backs are counted
        check_solver(settings)
    log = load_log(scenario)
    begin, end = span(scenario, log)
    changes = load_changes(scenario, begin, end)
    submissions, known, simulate = _trainers(scenario, begin)
    recorder = None if name is None else Recorder(begin, end)
    result = replay(
        changes,
        known,
        settings,
        begin,
        end,
        progress=lambda now: progress((now - begin) / (end - begin)),
        simulate=simulate,
        observer=recorder or NULL_OBSERVER,
    )
    figures = figures_of(result, submissions, settings, scenario.jct_first)
    figures["broken_log_lines"] = log.broken
    data = None
    if recorder is not None and name is not None:
        data = recorder.report_data(name, scenario.parameters, figures, result, submissions, settings)
    return Evaluation(figures, data, tuple(reason for reason, _ in result.tally.fallbacks.most_common()))


def _trainers(
    scenario: Scenario, begin: float
) -> tuple[Sequence[Submission], Sequence[Submission], Simulate]:
    """The trainers, as the engine gets them, and the launcher that simulates what they are really like."""
    if scenario.profiles is None:
        submissions = _submissions(scenario)
        return submissions, *_knowledge(scenario, submissions)
    from bftrainer.replay.trainers import adapting  # noqa: PLC0415  SciPy takes a while to import

    if scenario.settings.engine.share is Share.GPU:
        other = "trainers that have whole nodes, as with --profiles"
        raise workload.WorkloadError(
            f"{scenario.workload}: {NOT_WITH.say(options='share: gpu', other=other)}"
        )
    gpus = scenario.reading.gpus_per_node
    every, courses = adapting.read_courses(scenario.workload, scenario.profiles, gpus, begin)
    submissions = scenario.changes.apply(every)
    launcher = partial(
        adapting.AdaptingLauncher,
        submissions=submissions,
        courses=courses,
        noise=scenario.noise,
        seed=scenario.seed,
    )
    return submissions, hidden(submissions), launcher


def _submissions(scenario: Scenario) -> list[Submission]:
    """The trainers, with sizes in what the scenario shares out."""
    found = scenario.changes.apply(workload.read(scenario.workload, scenario.curves, scenario.model))
    each = scenario.reading.gpus_per_node
    if scenario.settings.engine.share is Share.NODE:
        return [replace(s, spec=workload.in_nodes(s.spec, each)) for s in found]
    return [replace(s, spec=counted(s.spec, scenario.settings.engine)) for s in found]


def _knowledge(
    scenario: Scenario, submissions: Sequence[Submission]
) -> tuple[Sequence[Submission], Simulate]:
    """The trainers as the engine gets them, and the launcher that simulates what they are really like."""
    if scenario.knowledge == "all":
        return submissions, SimulatedLauncher
    measuring = partial(MeasuringLauncher, submissions=submissions, noise=scenario.noise, seed=scenario.seed)
    return hidden(submissions), measuring
