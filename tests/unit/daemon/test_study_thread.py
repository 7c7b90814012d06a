"""A sampler that thinks for long, or fails, is the matter of its own study alone."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.studies import deciding as study_thread
from bftrainer.daemon.studies.deciding import StudyThread
from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.model.trainer import TrainerStatus
from bftrainer.search import events
from bftrainer.search.decide import OrderRefusedError
from bftrainer.search.optuna import sampling
from bftrainer.search.trial import Study, StudyStatus
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.threads import check
from tests.support.studies import TEXT, settings_of, spec_of
from tests.support.waiting import until

ENDED = partial(
    events.TrialEnded, run=1, status=TrainerStatus.COMPLETED, reason="", samples=TEXT["budget"], value=1.0
)
"""Of a trial's only run."""


class Kept:
    """A journal that remembers what it was given, in order."""

    def __init__(self, said: list[str]) -> None:
        self.said, self.briefs = said, list[Any]()
        self.new: Future[None] | None = None  # of new studies; None: they are stored at once

    def keep_study(
        self, study: StoredStudy, trials: list[StoredTrial], *, ahead: bool = False
    ) -> Future[None]:
        """Note what is to be stored."""
        self.said += [f"kept {study.id}.{t.number} {t.data.get('status', 'point')}" for t in trials]
        self.briefs.append(study.brief)
        if ahead and self.new is not None:
            return self.new
        stored: Future[None] = Future()
        stored.set_result(None)
        return stored


class Desk:
    """Two studies in one thread, and what it has done."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.telemetry, self.kept = Telemetry(), Kept(self.said)
        self.thread = StudyThread(settings_of(), self.kept, WallClock(), self.telemetry, self._act)  # type: ignore[arg-type]

    def _act(self, study: Study, action: events.StartTrial | events.StopTrial) -> None:
        self.said.append(f"{type(action).__name__} {study.id}.{action.number}")

    def begin(self, id_: int) -> None:
        """Begin with a study of two trials."""
        spec = spec_of(trials=2, parallelism=1, sampler="random")
        self.thread.begin(Study.new(id_, spec, "ann", 0.0))


@pytest.fixture
def desk() -> Any:
    own = Desk()
    yield own
    own.thread.close()


def test_a_trial_is_stored_before_its_trainer_is_submitted(desk: Desk) -> None:
    desk.begin(1)
    until(lambda: "StartTrial 1.0" in desk.said, "the first trial starts")
    assert desk.said == ["kept 1.0 running", "StartTrial 1.0"]


def test_a_study_is_stored_before_its_trials(desk: Desk) -> None:
    desk.kept.new = Future()
    desk.begin(1)
    stored = desk.kept.new
    desk.kept.new = None
    desk.begin(2)
    until(lambda: "StartTrial 2.0" in desk.said, "another study begins")
    assert not any("1.0" in said for said in desk.said)
    stored.set_result(None)
    until(lambda: "StartTrial 1.0" in desk.said, "it begins")


def test_a_sampler_that_thinks_keeps_no_other_study_waiting(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    thinking, go_on = threading.Event(), threading.Event()
    ask = sampling.Sampling.ask

    def slowly(self: sampling.Sampling, number: int, known: Any) -> Any:
        thinking.set()
        go_on.wait(30)
        return ask(self, number, known)

    monkeypatch.setattr(sampling.Sampling, "ask", slowly)
    desk.begin(1)
    assert thinking.wait(30)
    desk.begin(2)
    desk.thread.tell(2, events.Cancel())
    until(lambda: 2 not in desk.thread.snapshots, "the second study has ended")
    assert "StartTrial 1.0" not in desk.said
    go_on.set()
    until(lambda: "StartTrial 1.0" in desk.said, "the first study goes on")


def test_a_sampler_that_fails_ends_its_study_and_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = sampling.Sampling.ask
    failed = threading.Event()

    def once(self: sampling.Sampling, number: int, known: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise ValueError("no such distribution")
        return ask(self, number, known)

    monkeypatch.setattr(sampling.Sampling, "ask", once)
    desk.begin(1)
    until(lambda: 1 not in desk.thread.snapshots, "the first study has ended")
    desk.begin(2)
    until(lambda: "StartTrial 2.0" in desk.said, "the second study goes on")
    assert desk.thread.snapshots[2].status is StudyStatus.RUNNING
    assert desk.telemetry.troubles.texts(details=True) == [], "the others' daemon is as it was"


def test_a_decision_beyond_its_time_ends_its_study_with_what_it_had(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.begin(1)
    until(lambda: "StartTrial 1.0" in desk.said, "the first trial starts")
    decide, late = study_thread.step, threading.Event()

    def step(study: Study, event: events.Event, now: float) -> Any:
        if isinstance(event, events.TrialSlots):
            late.set()
            while True:
                check()
        return decide(study, event, now)

    monkeypatch.setattr(study_thread, "step", step)
    desk.thread._thread._limit_s = 0.05
    desk.thread.tell(1, events.TrialSlots(trials=4))
    assert late.wait(30)
    until(lambda: desk.thread.snapshots[1].status is StudyStatus.ENDED, "the study ends")
    assert "it takes more than 0.05 s of work" in desk.thread.snapshots[1].reason
    assert desk.thread.snapshots[1].trials[0].stopping is not None, "its trainer is being ended"


def test_an_order_that_no_longer_fits_is_refused_and_the_study_goes_on(desk: Desk) -> None:
    desk.begin(1)
    with pytest.raises(OrderRefusedError, match="3 trials in all are above 2"):
        desk.thread.tell(1, events.Add(trials=1, most=2)).result(30)
    assert desk.thread.snapshots[1].status is StudyStatus.RUNNING


def test_known_points_are_stored_once(desk: Desk) -> None:
    desk.begin(1)
    points = tuple((("lr", 0.01 * n),) for n in range(1, 4))
    desk.thread.tell(1, events.Add(trials=3, points=points)).result(30)
    until(lambda: "StartTrial 1.0" in desk.said, "the first trial starts")
    for number in range(4):
        until(lambda n=number: f"StartTrial 1.{n}" in desk.said, "the trial starts")  # type: ignore[misc]
        desk.thread.tell(1, ENDED(number=number)).result(30)
    assert [said for said in desk.said if said.endswith("point")] == [f"kept 1.{-n} point" for n in (1, 2, 3)]
    assert all(isinstance(brief["points"], int) for brief in desk.kept.briefs)


def test_of_what_a_script_reports_again_and_again_the_last_one_that_waits_counts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.begin(1)
    until(lambda: "StartTrial 1.0" in desk.said, "the first trial starts")
    desk.thread.tell(1, events.Started(number=0, run=1, trainer=7)).result(30)
    busy, go_on, decide, taken = threading.Event(), threading.Event(), study_thread.step, list[events.Event]()

    def step(study: Study, event: events.Event, now: float) -> Any:
        taken.append(event)
        if isinstance(event, events.Prioritise):
            busy.set()
            go_on.wait(30)
        return decide(study, event, now)

    monkeypatch.setattr(study_thread, "step", step)
    desk.thread.tell(1, events.Prioritise(to=0.5))
    assert busy.wait(30)
    for samples in range(1, 1001):
        value = float(samples)
        desk.thread.repeat(1, events.Reported(number=0, run=1, samples=samples, value=value))
        desk.thread.repeat(1, events.TrialSlots(trials=1, node_s=1.0))
    go_on.set()
    desk.thread.tell(1, events.Prioritise(to=0.6)).result(30)
    assert len(taken) == 4
    assert desk.thread.snapshots[1].trials[0].value == desk.thread.snapshots[1].used_node_s == 1000.0
    desk.thread.repeat(1, events.TrialSlots(trials=1, node_s=1.0))
    until(lambda: desk.thread.snapshots[1].used_node_s == 1001.0, "the next one counts, too")
