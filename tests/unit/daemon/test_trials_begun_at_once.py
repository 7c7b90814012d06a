"""A study that begins hundreds of trials at once keeps no other submission waiting for all of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bftrainer.daemon.index import Index
from bftrainer.daemon.studies import trial_runs
from bftrainer.daemon.studies.studies import Studies
from bftrainer.daemon.studies.trial_runs import AT_ONCE, TrialRuns
from bftrainer.model.trainer import TrainerSpec
from bftrainer.search import events
from bftrainer.search.decide import step
from bftrainer.search.trial import Study
from tests.support.studies import Run, filled, settings_of, spec_of

TRIALS = 5 * AT_ONCE


class Desk:
    """Takes trainers in order, each when `answer` is called; knows how many wait for that."""

    def __init__(self, study: Study, **settings: Any) -> None:
        self.told: list[events.Event] = []
        self.names: list[str] = []
        self.ids = 0
        self.waiting: list[asyncio.Future[int]] = []
        self.index = Index()
        self.thread = SimpleNamespace(
            snapshots={1: study}, tell=lambda _, event: self.told.append(event), fill=filled
        )
        own: dict[str, Any] = {
            "settings": settings_of(trainer_dir="/t", **settings),
            "clock": SimpleNamespace(now=lambda: 1.0),
            "store": None,
            "index": self.index,
            "runner": None,
            "launcher": None,
            "orders": self,
            "store_id": "m",
            "thread": self.thread,
        }
        self.runs = TrialRuns(**own)

    async def submit(self, wanted: TrainerSpec) -> int:
        """Take a trainer when it is answered."""
        self.names.append(wanted.name)
        self.waiting.append(asyncio.get_running_loop().create_future())
        return await self.waiting[-1]

    async def answer(self) -> None:
        """Take all trainers that wait."""
        taken, self.waiting = self.waiting, []
        for one in taken:
            self.ids += 1
            one.set_result(self.ids)
        for _ in range(8):
            await asyncio.sleep(0)


def begun() -> tuple[Study, Desk]:
    spec = spec_of(trials=TRIALS, parallelism=TRIALS, sampler="random")
    spec = replace(spec, trainer=replace(spec.trainer, user="ann"))
    study = replace(Run(spec).study, user="ann")
    return study, Desk(study)


async def start_all(study: Study, desk: Desk) -> None:
    for trial in study.trials.values():
        desk.runs.act(study, events.StartTrial(number=trial.number, run=trial.run))
    for _ in range(8):
        await asyncio.sleep(0)


def test_trials_begun_at_once_are_submitted_a_few_at_a_time_in_order() -> None:
    study, desk = begun()

    async def story() -> None:
        await start_all(study, desk)
        while desk.waiting:
            assert len(desk.waiting) <= AT_ONCE, "another submission would wait behind all of these"
            await desk.answer()

    asyncio.run(story())
    assert desk.names == [f"s.{number}.1" for number in range(TRIALS)]
    assert [type(event).__name__ for event in desk.told] == ["Started"] * TRIALS


def test_a_cancelled_study_submits_none_of_the_trials_that_wait_for_their_turn() -> None:
    study, desk = begun()

    async def story() -> None:
        await start_all(study, desk)
        desk.thread.snapshots[1], _ = step(study, events.Cancel(), 2.0)
        await desk.answer()
        while desk.waiting:
            await desk.answer()

    asyncio.run(story())
    assert len(desk.names) == AT_ONCE
    after = desk.thread.snapshots[1]
    for event in desk.told:
        if isinstance(event, events.Refused):
            after, _ = step(after, event, 3.0)
    left = [trial.number for trial in after.trials.values() if not trial.status.final]
    assert left == list(range(AT_ONCE)), "those that were submitted are stopped by `Started`"


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({"mode": "site", "max_trainers_per_user": 6}, 6),
        ({"mode": "single", "max_trainers_per_user": 6}, TRIALS),
        ({"mode": "single", "max_trainers": 7}, 7),
    ],
)
def test_trials_count_as_trainers_of_their_user(
    settings: dict[str, Any], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_runs, "AGAIN_S", 0.0)
    if settings["mode"] == "site":
        settings |= {"exec_prefix": ["sudo", "-u", "{user}", "--"], "socket": "/run/b.sock"}
    study, _ = begun()
    desk = Desk(study, **settings)

    async def story() -> None:
        await start_all(study, desk)
        while desk.waiting:
            await desk.answer()
        await asyncio.sleep(0.01)

    asyncio.run(story())
    assert len(desk.names) == taken == desk.index.count(None)
    assert desk.runs.places(study.user) == 0 or taken == TRIALS
    after = study
    for event in desk.told:
        assert isinstance(event, events.Started) or (isinstance(event, events.Refused) and event.again)
        after, _ = step(after, events.TrialSlots(trials=TRIALS, allowed=taken), 2.0)
        after, actions = step(after, event, 3.0)
        assert not actions, "none of those that were refused begins again at once"
    after, actions = step(after, events.TrialSlots(trials=TRIALS, allowed=None), 4.0)
    assert len(actions) == TRIALS - taken, "all begin when there are places"


def test_a_trial_whose_trainer_was_refused_counts_as_none() -> None:
    study, _ = begun()
    trials = [replace(t, trainer=9 if t.number < 3 else None) for t in study.trials.values()]
    desk: Any = SimpleNamespace(runs=SimpleNamespace(places=lambda user: 2))
    assert Studies._allowed(desk, study.put(*trials), 256) == 5, "it would begin again every few seconds"
    desk.runs.places = lambda user: 256
    assert Studies._allowed(desk, study, 256) is None
