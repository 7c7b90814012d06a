"""A study whose trials get no further says so, and since when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bftrainer.cli.studies.tables import head
from bftrainer.cli.studies.words import STALLED_S, stalled
from bftrainer.daemon.answers.views.studies import Now, study_row, study_view, trial_view
from bftrainer.daemon.studies.trial_runs import TrialRun, TrialRuns
from bftrainer.model.reports import Progress
from tests.support import studies

STUDY = studies.Run(studies.spec_of(trials=2, parallelism=2, sampler="random")).study
TRAINER = 7


class Clock:
    time = 100.0

    def now(self) -> float:
        return self.time


def runs(clock: Clock) -> TrialRuns:
    """Of a daemon that runs trial 0."""
    own: dict[str, Any] = dict.fromkeys(("settings", "store", "index", "runner", "launcher", "orders"))
    thread = SimpleNamespace(snapshots={STUDY.id: STUDY}, tell=lambda *_: None)
    found = TrialRuns(**own, clock=clock, store_id="m", thread=thread)  # type: ignore[arg-type]
    found._runs[TRAINER] = TrialRun(STUDY.id, 0, 1)
    return found


def report(samples: int) -> Progress:
    known = {"time": 0.0, "generation": 1, "size": 1, "step": 1, "epoch": 0, "rate": None, "metrics": {}}
    return Progress(trainer=TRAINER, samples=samples, **known)  # type: ignore[arg-type]


def test_a_study_gets_further_with_each_report_of_more_samples_and_with_no_other() -> None:
    clock = Clock()
    own = runs(clock)
    assert own.moved(STUDY.id) == 100.0, "as far as this daemon has seen"
    clock.time = 200.0
    own.reported(report(40))
    clock.time = 300.0
    own.reported(report(40))  # it began anew from a checkpoint, or stands still
    assert own.moved(STUDY.id) == 200.0
    own.reported(report(60))
    assert own.moved(STUDY.id) == 300.0


def view(moved_at: float | None, nodes: int = 0) -> dict[str, Any]:
    """A study as the API tells of it; its first trial holds so many nodes."""
    found = study_view(STUDY, {}, Now(moved_at=moved_at)) | {"storage": None}
    trials = [trial_view(STUDY, trial) for trial in STUDY.trials.values()]
    return {**found, "table": [{**t, "nodes": nodes if t["number"] == 0 else 0} for t in trials]}


def test_only_a_study_that_runs_and_has_stood_still_for_long_says_so() -> None:
    row = study_row(STUDY, 1000.0)
    assert stalled(row, 1000.0 + STALLED_S - 1) == ""
    assert stalled(row, 1000.0 + 1500.0) == "no progress for 25 min"
    assert stalled({**row, "status": "paused"}, 9e9) == ""
    assert stalled(study_row(STUDY), 9e9) == ""


def test_it_says_where_to_look() -> None:
    assert not any("no progress" in line for line in head(view(None)))
    (waits,) = (line for line in head(view(0.0)) if "no progress" in line)
    assert waits.endswith(": its trials have no nodes; bftrainer queue says why")
    (hangs,) = (line for line in head(view(0.0, nodes=2)) if "no progress" in line)
    assert hangs.endswith("its trials report none; see bftrainer study show 1 --trial 0")
