"""A study that runs is planned again, in another thread, and says when its forecast is another one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bftrainer.daemon.studies import forecasts as study_forecasts
from bftrainer.daemon.studies.forecasts import Means, StudyForecasts, StudyOutlook, ended_stages
from bftrainer.model.events import Event, StudyForecast
from bftrainer.search.plan.ahead import Ahead
from bftrainer.search.plan.model.experiment import Experiment, Stage
from bftrainer.search.plan.of_study import Learnt
from bftrainer.search.trial import RungResult, Study, Trial, TrialStatus
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.studies import curved, settings_of
from tests.support.waiting import until_true


class At:
    """A clock that stands where a test puts it."""

    time = 100.0

    def now(self) -> float:
        """Now."""
        return self.time


class Desk:
    """Forecasts, with what they have told."""

    def __init__(self) -> None:
        self.clock, self.told, self.telemetry = At(), list[Event](), Telemetry()
        self.forecasts = StudyForecasts(settings_of(), self.clock, self.telemetry, self.told.append)  # type: ignore[arg-type]

    async def look(self, study: Study, nodes: int) -> str:
        """Look, and wait for the forecast; returns what it says."""
        before = self.forecasts.view(study)
        self.forecasts.look(study, Means(nodes, 8))
        await until_true(lambda: self.forecasts.view(study) != before)
        found = self.forecasts.view(study)
        assert found is not None
        return f"{found['because']}: {found['text']}"

    def reasons(self) -> list[str]:
        """What was told."""
        assert all(isinstance(event, StudyForecast) and event.trainer == 7 for event in self.told)
        return [event.reason for event in self.told if isinstance(event, StudyForecast)]


@pytest.fixture
def desk() -> Iterator[Desk]:
    own = Desk()
    yield own
    own.forecasts.close()


def study(*ended: int, **more: Any) -> Study:
    """Four trials, of which each has ended so many rungs and is paused there; the others train."""
    new = Study.new(1, curved(trials=4, deadline="60s", **more), "ann", 100.0)
    for number, rungs in enumerate(ended):
        results = tuple(
            RungResult(rung=k, samples=new.brackets[0].budgets[k], value=0.5) for k in range(rungs)
        )
        status = TrialStatus.PAUSED if rungs else TrialStatus.RUNNING
        trainer = None if number else 7
        new = new.put(Trial(number=number, params={}, results=results, status=status, trainer=trainer))
    return new


def test_it_is_planned_again_after_each_stage_and_when_nodes_come_or_go(desk: Desk) -> None:
    async def story() -> None:
        assert (await desk.look(study(0), 4)).startswith("it began: 7 runs left, done in ")
        assert desk.reasons()[0].startswith("digits: it began: 7 runs left")
        before = desk.forecasts.view(study(0))
        desk.forecasts.look(study(0), Means(2, 8))  # too soon
        await until_true(lambda: not desk.forecasts._busy)
        assert desk.forecasts.view(study(0)) == before
        desk.clock.time += 11.0
        said = await desk.look(study(0), 1)
        assert said.startswith("nodes came or went: 7 runs left") and "too late; on time with" in said
        assert "too late" in desk.reasons()[1]
        desk.clock.time += 1.0
        assert (await desk.look(study(1, 1, 1, 1), 1)).startswith("a stage has ended: 3 runs left")
        assert len(desk.reasons()) == 3 and "on time" in desk.reasons()[2]
        desk.clock.time += 10.0
        assert (await desk.look(study(1, 1, 1, 1), 1)).startswith("time has passed")
        assert "too late" in desk.reasons()[3]
        desk.clock.time += 10.0
        assert (await desk.look(study(1, 1, 1, 1), 1)).startswith("time has passed")
        assert len(desk.reasons()) == 4, "what is the same is not told again"

    asyncio.run(story())


def test_a_study_whose_plan_takes_long_is_planned_less_often(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = study_forecasts.ahead

    def slow(*given: Any, **more: Any) -> Ahead | None:
        desk.clock.time += 2.0
        return planned(*given, **more)

    async def story() -> None:
        monkeypatch.setattr(study_forecasts, "ahead", slow)
        await desk.look(study(0), 4)
        before = desk.forecasts.view(study(0))
        desk.clock.time += 2.0 / study_forecasts.SHARE - 3.0
        desk.forecasts.look(study(0), Means(2, 8))
        await until_true(lambda: not desk.forecasts._busy)
        assert desk.forecasts.view(study(0)) == before
        desk.clock.time += 3.0
        assert (await desk.look(study(0), 2)).startswith("nodes came or went")

    asyncio.run(story())


def test_the_loop_goes_on_while_a_study_is_planned(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        planned, begun = threading.Event(), threading.Event()

        def slow(*args: object, **more: object) -> None:
            begun.set()
            planned.wait(60)

        monkeypatch.setattr(study_forecasts, "ahead", slow)
        desk.forecasts.look(study(0), Means(4, 8))
        await until_true(begun.is_set)
        desk.forecasts.look(study(1), Means(4, 8))  # it is busy, and nothing waits
        assert desk.forecasts.view(study(0)) is None
        planned.set()
        await until_true(lambda: not desk.forecasts._busy)

    asyncio.run(story())


def test_the_thread_and_not_the_loop_goes_through_a_studys_trials(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    real = study_forecasts.ended_stages

    def noted(own: Study) -> int:
        threads.append(threading.current_thread().name)
        return real(own)

    monkeypatch.setattr(study_forecasts, "ended_stages", noted)

    async def story() -> None:
        new = study(0)
        await desk.look(new, 4)
        desk.forecasts.look(new, Means(4, 8))
        assert not desk.forecasts._busy, "a study that is as it was is not looked at"

    asyncio.run(story())
    assert threads == ["forecasts"]


def test_stages_that_have_ended_are_counted() -> None:
    rungs = ((0,), (1, 1, 1, 1), (2, 1, 1, 1), (2, 2, 1, 1), (3, 2, 1, 1))
    stages = [study(*ended) for ended in rungs]
    counts = [study_forecasts.ended_stages(own) for own in stages]
    assert counts == [0, 1, 1, 2, 3], "of one bracket with rungs for 4, 2 and 1 trials"


def test_what_comes_while_no_trial_has_a_trainer_is_told_later(desk: Desk) -> None:
    async def story() -> None:
        new = study()
        await desk.look(new, 0)
        assert not desk.told
        desk.forecasts.look(study(0), Means(0, 8))
        await until_true(lambda: bool(desk.told))
        assert desk.reasons()[0].startswith("digits: it began: 7 runs left, no nodes now")
        assert "too late" not in desk.reasons()[0]

    asyncio.run(story())


def test_what_lacks_nodes_for_a_moment_is_taken_to_get_those_of_before(desk: Desk) -> None:
    async def story() -> None:
        own = curved(trials=4, deadline="1d")
        new = replace(study(0), spec=own)
        assert "with 4 nodes as now: on time" in await desk.look(new, 4)
        desk.clock.time += 11.0
        said = await desk.look(new, 0)
        assert "no nodes now, done in " in said and "once it has 4 nodes: on time if" in said
        view = desk.forecasts.view(new)
        assert view is not None and (view["ends_at"], view["late"]) == (None, False)

    asyncio.run(story())


def test_what_is_said_is_not_said_again_while_nothing_is_done() -> None:
    """The end moves on then, by more than all that is left."""
    short = Ahead(Experiment("digits", (Stage(2, 100.0),)), 2.0, None)
    first, later = (StudyOutlook(at=at, because="", found=short, nodes=2, until=None) for at in (0.0, 60.0))
    assert not later.differs(first)
    longer = StudyOutlook(at=60.0, because="", found=replace(short, seconds=90.0), nodes=2, until=None)
    assert longer.differs(first)


def test_a_plan_that_fails_is_told_and_the_study_goes_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        def broken(*args: object, **more: object) -> None:
            raise ValueError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(study_forecasts, "ahead", broken)
            desk.forecasts.look(study(0), Means(4, 8))
            await until_true(lambda: not desk.forecasts._busy)
        assert desk.forecasts.view(study(0)) is None
        assert desk.telemetry.troubles.texts(details=True) == [], "the others' daemon is as it was"
        desk.forecasts.look(study(0), Means(4, 8))
        assert not desk.forecasts._busy, "to try again at once may take as long again"
        desk.clock.time += study_forecasts.AGAIN_S
        assert await desk.look(study(0), 4)
        desk.forecasts.forget([])
        assert desk.forecasts.view(study(0)) is None

    asyncio.run(story())


def test_without_a_curve_it_is_planned_from_what_was_learnt(desk: Desk) -> None:
    async def story() -> None:
        plain = study(0, trainer={"curve": None})
        learnt = Learnt(((1, 1000.0), (4, 3400.0)), 2.0)
        desk.forecasts.look(plain, Means(4, 8, learnt=learnt))
        await until_true(lambda: desk.forecasts.view(plain))
        found = desk.forecasts.view(plain)
        assert found is not None and str(found["text"]).startswith("7 runs left, done in ")

    asyncio.run(story())


def test_without_a_curve_nothing_is_planned(desk: Desk) -> None:
    async def story() -> None:
        plain = study(0, trainer={"curve": None})
        desk.forecasts.look(plain, Means(4, 8))
        assert not desk.forecasts._busy

    asyncio.run(story())


def test_a_stage_has_ended_when_no_trial_is_left_in_it() -> None:
    assert [ended_stages(study(*ended)) for ended in [(0,), (1, 1, 1), (1, 1, 1, 1), (2, 2, 1, 1)]] == [
        0,
        0,
        1,
        2,
    ]
