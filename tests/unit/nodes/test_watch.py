"""How often the scheduler is polled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from bftrainer.errors import SchedulerError
from bftrainer.model.events import Event, PollFailed
from bftrainer.model.machine import Snapshot
from bftrainer.nodes.watch import MAX_POLL_S, Watch
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.nodes_world import settings_in


class EnoughError(Exception):
    """The test has seen what it wanted."""


class Scheduler:
    """A scheduler and the clock beside it; `answers` says of each poll whether it changes anything, or why it
    fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Any, **given: object) -> None:
        self.answers: list[bool | str] = []
        self.holding = False
        self.asked_s: float | None = None
        self.unseen = ""
        self.events: list[Event] = []
        self.waits: list[float] = []
        self.telemetry = Telemetry()
        self.watch = Watch(
            settings=LiveSettings(settings_in(folder, **given)),
            clock=self,
            scheduler=self,
            emit=self.events.append,
            telemetry=self.telemetry,
            take_in=self.take_in,
            quiet=lambda: not self.holding,
        )
        monkeypatch.setattr("bftrainer.nodes.watch.asyncio.wait_for", self.wait)

    def now(self) -> float:
        return 1.0

    async def poll(self) -> Snapshot:
        if isinstance(self.answers[0], str):
            raise SchedulerError(self.answers.pop(0))
        return Snapshot(time=1.0, nodes=(), asked_s=self.asked_s, unseen=self.unseen)

    async def take_in(self, snapshot: Snapshot) -> bool:
        return bool(self.answers.pop(0))

    async def wait(self, what: Awaitable[object], seconds: float) -> None:
        what.close()  # type: ignore[attr-defined]
        self.waits.append(seconds)
        if not self.answers:
            raise EnoughError
        raise TimeoutError

    def waited(self, *answers: bool | str) -> list[float]:
        """The waits after polls that are answered so."""
        self.answers, self.waits = list(answers), []
        with pytest.raises(EnoughError):
            asyncio.run(self.watch.run())
        return self.waits

    def __getattr__(self, name: str) -> Any:  # the rest of `ports.Scheduler`, which no poll needs
        raise AssertionError(name)


def test_polls_that_fail_come_less_and_less_often_and_are_said_to_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    site = Scheduler(monkeypatch, tmp_path, poll_s=1.0, failed_polls=3)
    assert site.waited("slow", "slow") == [2.0, 4.0]
    assert not site.telemetry.troubles.has("scheduler"), "two may be chance"
    assert site.waited(*["slow"] * 5) == [8.0, 16.0, *[MAX_POLL_S] * 3]
    assert site.telemetry.troubles.texts(details=True) == ["7 polls failed: slow"]
    assert [type(event) for event in site.events] == [PollFailed] * 7
    assert site.waited(True, "slow") == [1.0, 2.0], "counted anew"
    assert not site.telemetry.troubles.has("scheduler")


def test_what_a_poll_leaves_out_is_told_until_a_poll_shows_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    site = Scheduler(monkeypatch, tmp_path)
    site.unseen = "squeue prints more than we read"
    site.waited(True)
    assert site.telemetry.troubles.texts(details=False, blocking=False) == [site.unseen]
    assert site.telemetry.troubles.texts(details=False, blocking=True) == [], "polls go on"
    site.unseen = ""
    site.waited(True)
    assert site.telemetry.troubles.texts(details=True) == []


def test_polls_are_rare_only_while_nothing_is_held_and_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    site = Scheduler(monkeypatch, tmp_path, poll_s=1.0, poll_max_s=2.0)
    assert site.waited(True, False, False, False) == [1.0, 1.5, 2.0, 2.0]
    assert site.waited(True, False) == [1.0, 1.5]
    site.holding = True
    assert site.waited(False, False) == [1.0, 1.0]


def test_polls_rest_for_the_time_that_the_scheduler_worked_and_not_for_our_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    site = Scheduler(monkeypatch, tmp_path)
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr("bftrainer.nodes.watch.asyncio.sleep", rest)
    site.asked_s = 5.0
    site.waited(False, False)
    site.asked_s = 0.0
    site.waited(False, False)
    _, after_five, again, after_none = rests
    assert after_five > 19 and again > 19
    assert after_none <= 0
