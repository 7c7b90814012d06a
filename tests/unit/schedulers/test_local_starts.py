"""Pilots of the local scheduler start where the disk does not answer: everything else goes on."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bftrainer.errors import NoRoomError, SchedulerError
from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.local import scheduler as local
from bftrainer.schedulers.local.scheduler import LocalScheduler, Playback
from tests.support.waiting import until_true

PILOT = Pilot(tag="t1", node="n1")


class Clock:
    def __init__(self) -> None:
        self.skipped = 0.0

    def now(self) -> float:
        return time.time() + self.skipped

    def behind_s(self) -> float:
        return 0.0


def story(
    folder: Path, scenario: Callable[[LocalScheduler, Clock, asyncio.Task[None]], Awaitable[None]]
) -> None:
    """Node n1 is idle, taken after 1,000 s, and idle again after 1,001 s. A pilot starts there, whose log is
    a pipe that nobody reads yet: to open it takes until somebody does."""
    one, clock = frozenset({"n1"}), Clock()
    (folder / "logs").mkdir()
    os.mkfifo(folder / "logs" / "agent-n1.log")
    scheduler = LocalScheduler(
        nodes=one,
        changes=[
            NodesChanged(time=0.0, joined=one),
            NodesChanged(time=1000.0, left=one),
            NodesChanged(time=1001.0, joined=one),
            NodesChanged(time=9e9),
        ],
        playback=Playback(begin=0.0, origin=time.time(), speed=1.0),
        agents_at=str(folder / "agents.sock"),
        log_dir=folder / "logs",
        orphan_s=60.0,
        clock=clock,
    )

    async def run() -> None:
        await scheduler.poll()
        starting = asyncio.create_task(scheduler.submit(PILOT, "secret"))
        await until_true(lambda: scheduler._starting)
        assert (await scheduler.poll()).pilots == (), "a poll does not wait"
        await scenario(scheduler, clock, starting)
        await scheduler.cancel([PILOT])
        await until_true(lambda: all(child.poll() is not None for child, _ in scheduler._children))
        await scheduler.close()

    asyncio.run(run())


def answer(folder: Path) -> int:
    """The disk answers: the pipe has a reader."""
    return os.open(folder / "logs" / "agent-n1.log", os.O_RDONLY | os.O_NONBLOCK)


def test_it_is_there_once_the_disk_answers(tmp_path: Path) -> None:
    async def scenario(scheduler: LocalScheduler, clock: Clock, starting: asyncio.Task[None]) -> None:
        answer(tmp_path)
        await starting
        assert (await scheduler.poll()).pilots == (PILOT,)

    story(tmp_path, scenario)


@pytest.mark.parametrize("skipped_s", [1000.5, 1002.0])
def test_it_is_killed_if_its_node_was_taken_meanwhile(tmp_path: Path, skipped_s: float) -> None:
    async def scenario(scheduler: LocalScheduler, clock: Clock, starting: asyncio.Task[None]) -> None:
        clock.skipped = skipped_s
        await scheduler.poll()
        answer(tmp_path)
        with pytest.raises(NoRoomError, match="n1 was taken"):
            await starting
        await until_true(lambda: all(child.poll() is not None for child, _ in scheduler._children))

    story(tmp_path, scenario)


def test_it_is_killed_if_it_was_cancelled_meanwhile(tmp_path: Path) -> None:
    async def scenario(scheduler: LocalScheduler, clock: Clock, starting: asyncio.Task[None]) -> None:
        await scheduler.cancel([PILOT])
        answer(tmp_path)
        with pytest.raises(NoRoomError, match="cancelled"):
            await starting
        await until_true(lambda: all(child.poll() is not None for child, _ in scheduler._children))

    story(tmp_path, scenario)


def test_nobody_waits_for_it_any_more_and_its_child_is_known(tmp_path: Path) -> None:
    async def scenario(scheduler: LocalScheduler, clock: Clock, starting: asyncio.Task[None]) -> None:
        starting.cancel()
        answer(tmp_path)
        await until_true(lambda: scheduler._children)
        assert await scheduler.pilots() == (PILOT,)

    story(tmp_path, scenario)


def test_a_thread_that_cannot_be_had_is_a_failure_of_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*args: object) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario(scheduler: LocalScheduler, clock: Clock, starting: asyncio.Task[None]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("bftrainer.schedulers.local.scheduler.in_thread", no_thread)
            with pytest.raises(SchedulerError, match="n1: can't start new thread"):
                await scheduler.submit(PILOT, "secret")
        answer(tmp_path)
        with pytest.raises(NoRoomError):  # the other one of this name
            await starting

    story(tmp_path, scenario)


def test_nothing_waits_while_a_pilots_processes_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, go = threading.Event(), threading.Event()

    def below(leader: int) -> set[int]:
        looking.set()
        assert go.wait(10), "the event loop waits"
        return set()

    async def scenario(scheduler: LocalScheduler, clock: Clock, starting: asyncio.Task[None]) -> None:
        answer(tmp_path)
        await starting
        monkeypatch.setattr(local, "_below", below)
        cancelling = asyncio.create_task(scheduler.cancel([PILOT]))
        await until_true(looking.is_set)
        go.set()
        await cancelling

    story(tmp_path, scenario)
