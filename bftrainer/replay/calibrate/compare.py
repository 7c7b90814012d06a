"""A history beside its replay: the samples that were processed, and those that the replay predicts.

The engine and the simulated launcher predict which trainer gets which nodes when, hence for how long every
trainer trains on how many nodes, stands still or waits for workers; what it loses with all its nodes at
once; when its work is done; and so how many samples it processes.
"""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.replay.calibrate.history import History
from bftrainer.replay.calibrate.launcher import HistoryLauncher
from bftrainer.replay.loop import Progress, replay
from bftrainer.replay.tally import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Samples processed by one trainer or by all, including those that were trained twice."""

    name: str
    recorded: float
    predicted: float

    @property
    def difference(self) -> float | None:
        """Deviation of the prediction, relative to the history; None if nothing was processed."""
        return (self.predicted - self.recorded) / self.recorded if self.recorded else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryComparison:
    """A history beside its replay: one line per trainer, and one for all of them."""

    trainers: tuple[Line, ...]
    total: Line
    result: Result


def compare(history: History, progress: Progress = lambda now: None) -> HistoryComparison:
    """Replay a history and compare what that predicts with it. `progress` takes the virtual time."""
    result = replay(
        history.changes,
        history.submissions,
        history.settings,
        history.begin,
        history.end,
        progress,
        simulate=lambda emit, clock: HistoryLauncher(emit, clock, history),
    )
    pairs = zip(history.submissions, history.fitted, strict=True)
    lines = tuple(
        Line(
            name=submission.spec.name,
            recorded=fitted.processed,
            predicted=_samples(result, id_),
        )
        for id_, (submission, fitted) in enumerate(pairs, start=1)
    )
    total = Line(
        name="all trainers",
        recorded=sum(line.recorded for line in lines),
        predicted=sum(line.predicted for line in lines),
    )
    return HistoryComparison(trainers=lines, total=total, result=result)


def _samples(result: Result, id_: int) -> float:
    """Samples that a trainer processed in the replay; 0 if it was submitted at its very end."""
    trainer = result.trainers.get(id_)
    return 0.0 if trainer is None else trainer.samples + trainer.repeated
