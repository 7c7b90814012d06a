"""What a study's trials take to start is learnt from their first reports, and forecasts count it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bftrainer.daemon.studies.trial_runs import TrialRun, TrialRuns
from bftrainer.daemon.studies.trial_starts import TrialStarts
from bftrainer.model.reports import Progress
from bftrainer.search.plan.ahead import ahead
from bftrainer.search.plan.of_study import Learnt
from tests.support import studies

STUDY = studies.Run(studies.spec_of(trials=2, parallelism=2, sampler="random")).study


def report(time: float, samples: int, *, trainer: int = 7, rate: float | None = 20.0) -> Progress:
    known: dict[str, Any] = {"generation": 1, "size": 1, "step": 1, "epoch": 0, "metrics": {}}
    return Progress(time=time, trainer=trainer, samples=samples, rate=rate, **known)


def test_a_start_ends_where_the_training_before_the_first_report_began() -> None:
    starts = TrialStarts()
    assert starts.typical_s(1) is None
    starts.trains(1, report(100.0, 40), 0)
    assert starts.typical_s(1) is None, "it is not known when it got nodes"
    starts.placed(7, 100.0)
    starts.placed(7, 101.0)
    starts.trains(1, report(105.0, 400), 400)  # nothing of its own yet
    starts.trains(1, report(106.0, 440), 400)
    starts.trains(1, report(200.0, 900), 400)
    assert starts.typical_s(1) == 4.0, "two of the six seconds were training"
    starts.placed(8, 100.0)
    starts.trains(1, report(102.0, 40, trainer=8, rate=None), 0)
    assert starts.typical_s(1) == 3.0
    starts.forget([1])
    assert starts.typical_s(1) == 3.0
    starts.forget([])
    assert starts.typical_s(1) is None


def test_a_trial_is_watched_from_the_look_at_which_it_holds_nodes() -> None:
    clock = SimpleNamespace(now=lambda: 100.0)
    held = SimpleNamespace(id=7, nodes=frozenset({"n1"}))
    own: dict[str, Any] = dict.fromkeys(("settings", "store", "index", "launcher", "orders"))
    own["runner"] = SimpleNamespace(state=SimpleNamespace(active={7: held}))
    own["thread"] = SimpleNamespace(snapshots={STUDY.id: STUDY}, tell=lambda *_: None)
    runs = TrialRuns(**own, clock=clock, store_id="m")  # type: ignore[arg-type]
    runs._runs[7] = TrialRun(STUDY.id, 0, 1)
    assert runs.held() == {STUDY.id: [1]}
    runs.reported(report(103.0, 20))
    assert runs.starts.typical_s(STUDY.id) == 2.0


def test_a_forecast_counts_it_for_each_run_where_the_trainer_does_not_say() -> None:
    plain, said = (
        ahead(studies.curved(), [], 4, None, learnt=Learnt((), start_s)) for start_s in (None, 3.0)
    )
    assert plain is not None and plain.seconds is not None and said is not None
    assert said.seconds == pytest.approx(plain.seconds + (2 + 1 + 1) * 3.0), "8, 4 and 2 trials on 4 nodes"
    given = studies.curved(trainer={"rescale": {"up": {"stall_s": 1, "init_s": 1}, "down": {"stall_s": 1}}})
    one, other = (ahead(given, [], 4, None, learnt=Learnt((), start_s)) for start_s in (None, 3.0))
    assert one == other
