"""One call from a scenario to figures."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path

from bftrainer.allocate import check_solver
from bftrainer.model.events import NodesChanged
from bftrainer.replay import workload
from bftrainer.replay.figures import figures_of
from bftrainer.replay.loop import NULL_OBSERVER, Simulate, replay
from bftrainer.replay.record.data import ReportData
from bftrainer.replay.record.recorder import Recorder
from bftrainer.replay.scenario import Scenario
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.trainers.measuring import MeasuringLauncher, hidden
from bftrainer.traces import intervals, logs
from bftrainer.traces.intervals import LogError
from bftrainer.traces.logs import Log, LogOptions


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures of `figures.figures_of`, and, where that was asked for, what a report needs.

    `fallbacks` has the reasons why the allocator that was asked for did not decide, the most frequent first.
    """

    figures: dict[str, object]
    report_data: ReportData | None
    fallbacks: tuple[str, ...] = ()


SLACK_S = 3600.0
"""How far a replay may go beyond the log's last entry: its last state is taken to last."""


def evaluate(
    scenario: Scenario, progress: Callable[[float], None] = lambda done: None, *, name: str | None = None
) -> Evaluation:
    """Replay a scenario; with a `name`, keep a record of it under that name.

    `progress` takes the share done, 0 to 1.

    Raises:
        LogError, WorkloadError: unreadable input, or a span outside of the log.
        SolverError: the allocator is `milp`, and its solver does not work.
    """
    if scenario.settings.allocator == "milp":  # where `auto` misses the solver, its fall-backs are counted
        check_solver(scenario.settings.engine)
    log = _log(scenario.log, scenario.reading, stamp(scenario.log))
    begin, end = span(scenario, log)
    changes = _changes(
        scenario.log, scenario.reading, stamp(scenario.log), scenario.nodes, scenario.pick, begin, end
    )
    if not any(change.joined for change in changes):
        raise LogError(
            f"{scenario.log}: none of the chosen nodes is idle from {_iso(begin)} to {_iso(end)} UTC; choose "
            "other nodes by --pick, more of them, or other hours"
        )
    submissions = scenario.changes.apply(workload.read(scenario.workload, scenario.curves, scenario.model))
    settings = scenario.settings.engine
    recorder = None if name is None else Recorder(begin, end)
    known: Sequence[workload.Submission] = submissions
    simulate: Simulate = SimulatedLauncher
    if scenario.knowledge == "none":
        known = hidden(submissions)
        simulate = partial(
            MeasuringLauncher, submissions=submissions, noise=scenario.noise, seed=scenario.seed
        )
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
    reasons = tuple(reason for reason, _ in result.tally.fallbacks.most_common())
    if recorder is None or name is None:
        return Evaluation(figures, None, reasons)
    parameters = scenario.parameters
    data = recorder.report_data(name, parameters, figures, result, submissions, settings)
    return Evaluation(figures, data, reasons)


def span(scenario: Scenario, log: Log) -> tuple[float, float]:
    """When the replay begins and ends (Unix seconds).

    Raises:
        LogError: outside of what the log tells about.
    """
    begin = log.begin if scenario.begin is None else scenario.begin
    end = log.end if scenario.hours is None else begin + scenario.hours * 3600
    if not (log.begin <= begin < log.end) or end <= begin:
        raise LogError(
            f"{scenario.log}: spans {_iso(log.begin)} to {_iso(log.end)} UTC; --from {_iso(begin)} is outside"
        )
    if end > log.end + SLACK_S:
        hours = (log.end - begin) / 3600
        raise LogError(
            f"{scenario.log}: ends at {_iso(log.end)} UTC; --hours {scenario.hours:g} from {_iso(begin)} go "
            f"beyond; ask for at most {hours:.4g}"
        )
    return begin, end


def chosen(names: Sequence[str], nodes: int | None, pick: int | None) -> frozenset[str]:
    """So many of the nodes: the first in sorted order, or chosen at random by the seed `pick`.

    Raises:
        LogError: there are fewer nodes.
    """
    ordered = sorted(names)
    if nodes is None:
        return frozenset(ordered)
    if nodes > len(ordered):
        raise LogError(f"--nodes {nodes}: the log has {len(ordered)} nodes; ask for at most that many")
    if pick is None:
        return frozenset(ordered[:nodes])
    return frozenset(random.Random(pick).sample(ordered, nodes))  # noqa: S311  not for secrets


def stamp(path: Path) -> tuple[int, int]:
    """Changes when the file does.

    Raises:
        LogError: there is none.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}") from error
    return found.st_size, found.st_mtime_ns


@lru_cache(maxsize=1)
def _log(path: Path, reading: LogOptions, stamp: tuple[int, int]) -> Log:
    """Replays of the same log in one process read it once."""
    log = logs.load(path, reading)
    if not log.intervals:
        raise LogError(f"{path}: no intervals")
    return log


@lru_cache(maxsize=1)
def _changes(
    path: Path,
    reading: LogOptions,
    stamp: tuple[int, int],
    nodes: int | None,
    pick: int | None,
    begin: float,
    end: float,
) -> list[NodesChanged]:
    """Replays of the same nodes and hours work out once what happens to them."""
    log = _log(path, reading, stamp)
    return intervals.changes(log.intervals, chosen(sorted(log.nodes), nodes, pick), begin, end)


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")
