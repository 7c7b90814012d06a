"""A trial hears of its trainer's end when the last worker has gone, even if the daemon was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bftrainer.daemon.studies import trial_runs
from bftrainer.daemon.studies.trial_runs import TrialRun, TrialRuns
from bftrainer.errors import DamagedError, StoreError
from bftrainer.model.reports import TrainerSummary
from bftrainer.model.trainer import TrainerStatus
from bftrainer.search import events
from bftrainer.search.fill import trainer_of
from bftrainer.search.trial import Study
from tests.support.studies import Run, filled, spec_of

CANCELLED = TrainerSummary(
    id=1,
    user="ann",
    name="s.0.1",
    status=TrainerStatus.CANCELLED,
    reason="",
    submitted_at=0.0,
    ended_at=1.0,
    samples=300,
    step=3,
    epoch=0,
    rate=None,
    metrics={"loss": 2.0},
    work=800,
)


def runs(
    study: Study,
    workers: dict[str, str],
    told: list[events.Event],
    *,
    damaged: bool = False,
    unreadable: int = 0,
) -> TrialRuns:
    """Of a daemon that has just started: its store has the end of the trial's trainer, or a damaged row. It
    cannot be read `unreadable` times."""
    failures = iter(range(unreadable))
    folder = "/t/s-1-m/0"
    spec = trainer_of(study.spec, 0, study.trials[0].params, run=1, samples=800, checkpoint_dir=folder)
    ended = SimpleNamespace(id=1, spec=spec, status=CANCELLED.status, summary=CANCELLED)

    def stored(id_: int) -> Any:
        if damaged:
            raise DamagedError("trainer 1 is damaged in the store")
        return ended

    async def aside(work: Callable[..., Any], *args: Any) -> Any:
        if next(failures, None) is not None:
            raise StoreError("database disk image is malformed")
        return work(*args)

    own: dict[str, Any] = {
        "settings": SimpleNamespace(current=SimpleNamespace(trainer_dir="/t")),
        "clock": None,
        "store": SimpleNamespace(latest_named=lambda name: {"ann": 1}, trainer=stored),
        "index": SimpleNamespace(over=lambda id_: None),
        "runner": SimpleNamespace(aside=aside),
        "launcher": SimpleNamespace(workers=lambda id_: workers),
        "orders": None,
        "store_id": "m",
        "thread": SimpleNamespace(
            snapshots={1: study}, tell=lambda _, event: told.append(event), fill=filled
        ),
    }
    return TrialRuns(**own)


def test_a_trial_hears_of_its_end_when_the_workers_that_outlived_the_daemon_have_gone() -> None:
    study = replace(Run(spec_of(trials=1, parallelism=1, sampler="random")).study, user="ann")
    workers, told = {"n1": "leaving"}, list[events.Event]()
    own = runs(study, workers, told)

    async def story() -> None:
        await own.find_all(study)
        own.look()
        assert told == [], "the next run would read a checkpoint that is being written"
        workers.clear()
        own.look()
        await asyncio.sleep(0)
        assert [(type(event).__name__, event.samples) for event in told] == [("TrialEnded", 300)]  # type: ignore[union-attr]

    asyncio.run(story())


def test_a_trainer_that_is_damaged_in_the_store_has_ended_for_its_trial() -> None:
    study = replace(Run(spec_of(trials=1, parallelism=1, sampler="random")).study, user="ann")
    told = list[events.Event]()
    own = runs(study, {}, told, damaged=True)

    async def story() -> None:
        await own.find_all(study)
        own.look()
        await asyncio.sleep(0)
        assert [event.reason for event in told] == ["nothing is known of its end"]  # type: ignore[union-attr]

    asyncio.run(story())


def test_a_store_that_cannot_be_read_is_asked_again_and_ends_no_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial_runs, "AGAIN_S", 0.0)
    study = replace(Run(spec_of(trials=1, parallelism=1, sampler="random")).study, user="ann")
    told = list[events.Event]()
    asyncio.run(runs(study, {}, told, unreadable=3).find_all(study))
    assert [(type(event).__name__, event.samples) for event in told] == [("TrialEnded", 300)]  # type: ignore[union-attr]


def test_a_trial_whose_trainer_has_ended_here_hears_of_it_when_the_last_worker_has_gone() -> None:
    study = replace(Run(spec_of(trials=1, parallelism=1, sampler="random")).study, user="ann")
    workers, told = {"n1": "leaving"}, list[events.Event]()
    own = replace(runs(study, workers, told), clock=SimpleNamespace(now=lambda: 1.0))
    own._runs[1] = TrialRun(1, 0, 1)

    async def story() -> None:
        own.ended(1)
        own.look()
        assert told == [], "it may still write a checkpoint"
        workers.clear()
        own.look()
        await asyncio.sleep(0)
        assert len(told) == 1

    asyncio.run(story())
