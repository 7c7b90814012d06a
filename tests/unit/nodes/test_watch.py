"""How often the scheduler is polled."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import Any

import pytest

from bftrainer.errors import SchedulerError
from bftrainer.model.events import Event, PollFailed
from bftrainer.model.machine import Node, NodeState, Snapshot
from bftrainer.nodes.watch import MAX_POLL_S, Watch
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.nodes_world import settings_in
from tests.support.waiting import until_true


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
        self.nodes: tuple[Node, ...] = ()
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
        return Snapshot(time=1.0, nodes=self.nodes, asked_s=self.asked_s, unseen=self.unseen)

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


def test_a_poll_that_hangs_is_told_before_it_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with monkeypatch.context() as patched:  # here polls wait in earnest
        site = Scheduler(patched, tmp_path, poll_s=0.01, poll_max_s=0.02, failed_polls=3)
    poll = site.poll

    async def story() -> None:
        hangs, goes_on = asyncio.Event(), asyncio.Event()

        async def hanging() -> Snapshot:
            if not site.answers:
                hangs.set()
                await goes_on.wait()
                site.answers = [True] * 100_000
            return await poll()

        monkeypatch.setattr(site, "poll", hanging)
        site.answers = [True]
        polls = asyncio.create_task(site.watch.run())
        await hangs.wait()
        await until_true(lambda: site.telemetry.troubles.has("scheduler"))
        (told,) = site.telemetry.troubles.texts(details=True)
        assert re.fullmatch(r"no poll was answered for \d+ s", told)
        assert site.events == [], "it has not failed yet"
        goes_on.set()
        await until_true(lambda: not site.telemetry.troubles.has("scheduler"))
        polls.cancel()
        await asyncio.gather(polls, return_exceptions=True)
        await site.watch.poll()
        assert site.watch._due is None, "nobody polls any more, and nothing is expected"

    asyncio.run(story())


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


def node(number: int, state: NodeState, shut: str = "") -> Node:
    return Node(name=f"n{number}", state=state, shut=shut)


def test_a_machine_of_which_no_node_can_be_held_is_told_as_long_as_that_lasts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    site = Scheduler(monkeypatch, tmp_path)
    busy, unused = NodeState.BUSY, NodeState.UNUSED
    site.nodes = (node(1, unused, "nothing preempts; set a"), node(2, busy, "nothing preempts; set a"))
    site.waited(True)
    assert site.telemetry.troubles.texts(details=False, blocking=True) == [
        "no node can be held: nothing preempts; set a"
    ]
    site.nodes = (*site.nodes, node(3, unused, "no GPUs; set b"))
    site.waited(True)
    assert site.telemetry.troubles.texts(details=False) == [
        "no node can be held: nothing preempts; set a (2 of 3 nodes; of 1 more: no GPUs; set b)"
    ]
    for last in (node(4, busy), node(4, NodeState.IDLE)):
        site.nodes = (*site.nodes[:3], last)
        site.waited(True)
        assert site.telemetry.troubles.texts(details=True) == [], "a main job may give it back"


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
