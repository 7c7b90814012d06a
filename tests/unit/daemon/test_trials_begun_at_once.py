"""A study that begins hundreds of trials at once keeps no other submission waiting for all of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from bftrainer.daemon.trial_runs import AT_ONCE, TrialRuns
from bftrainer.model.trainer import TrainerSpec
from bftrainer.search import events
from bftrainer.search.decide import step
from bftrainer.search.trial import Study
from tests.support.studies import Run, spec_of

TRIALS = 5 * AT_ONCE


class Desk:
    """Takes trainers in order, each when `answer` is called; knows how many wait for that."""

    def __init__(self, study: Study) -> None:
        self.told: list[events.Event] = []
        self.names: list[str] = []
        self.waiting: list[asyncio.Future[int]] = []
        self.thread = SimpleNamespace(snapshots={1: study}, tell=lambda _, event: self.told.append(event))
        own: dict[str, Any] = {
            "settings": SimpleNamespace(current=SimpleNamespace(trainer_dir="/t", max_trainers=1000)),
            "clock": SimpleNamespace(now=lambda: 1.0),
            "store": None,
            "index": SimpleNamespace(count=lambda user: 0, submitted=lambda *args: None),
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
        for number, one in enumerate(taken):
            one.set_result(len(self.names) + number)
        for _ in range(4):
            await asyncio.sleep(0)


def begun() -> tuple[Study, Desk]:
    study = Run(spec_of(trials=TRIALS, parallelism=TRIALS, sampler="random")).study
    return study, Desk(study)


async def start_all(study: Study, desk: Desk) -> None:
    for trial in study.trials.values():
        desk.runs.act(study, events.Start(number=trial.number, run=trial.run))
    for _ in range(4):
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
