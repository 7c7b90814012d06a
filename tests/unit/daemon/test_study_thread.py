"""A sampler that thinks for long, or fails, is the matter of its own study alone."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.study_thread import StudyThread
from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.search import events, sampling
from bftrainer.search.trial import Study, StudyStatus
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.studies import spec_of
from tests.support.waiting import until


class Kept:
    """A journal that remembers what it was given, in order."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def keep_study(self, study: StoredStudy, trials: list[StoredTrial]) -> Future[None]:
        """Note what is to be stored."""
        self.said += [f"kept {study.id}.{trial.number} {trial.data['status']}" for trial in trials]
        stored: Future[None] = Future()
        stored.set_result(None)
        return stored


class Desk:
    """Two studies in one thread, and what it has done."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.telemetry = Telemetry()
        self.thread = StudyThread(Kept(self.said), WallClock(), self.telemetry, self._act)  # type: ignore[arg-type]

    def _act(self, study: Study, action: events.Start | events.Stop) -> None:
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
    until(lambda: "Start 1.0" in desk.said, "the first trial starts")
    assert desk.said == ["kept 1.0 running", "Start 1.0"]


def test_a_sampler_that_thinks_keeps_no_other_study_waiting(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    thinking, go_on = threading.Event(), threading.Event()
    ask = sampling.Sampling.ask

    def slowly(self: sampling.Sampling, number: int) -> Any:
        thinking.set()
        go_on.wait(30)
        return ask(self, number)

    monkeypatch.setattr(sampling.Sampling, "ask", slowly)
    desk.begin(1)
    assert thinking.wait(30)
    desk.begin(2)
    desk.thread.tell(2, events.Cancel())
    until(lambda: 2 not in desk.thread.snapshots, "the second study has ended")
    assert "Start 1.0" not in desk.said
    go_on.set()
    until(lambda: "Start 1.0" in desk.said, "the first study goes on")


def test_a_sampler_that_fails_ends_its_study_and_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = sampling.Sampling.ask
    failed = threading.Event()

    def once(self: sampling.Sampling, number: int) -> Any:
        if not failed.is_set():
            failed.set()
            raise ValueError("no such distribution")
        return ask(self, number)

    monkeypatch.setattr(sampling.Sampling, "ask", once)
    desk.begin(1)
    until(lambda: 1 not in desk.thread.snapshots, "the first study has ended")
    desk.begin(2)
    until(lambda: "Start 2.0" in desk.said, "the second study goes on")
    assert desk.thread.snapshots[2].status is StudyStatus.RUNNING
    (told,) = desk.telemetry.troubles.texts(details=True)
    assert "a study could not go on" in told
