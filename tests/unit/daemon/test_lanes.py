"""What takes long has threads of its own, and a bound for those that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bftrainer.api.admission import BusyError
from bftrainer.api.errors import LateError
from bftrainer.daemon.lanes import Lane
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.nodes_world import settings_in
from tests.support.waiting import until_true


class Held:
    """A lane whose thread is held up until `go`."""

    def __init__(self, folder: Path, **settings: float) -> None:
        self.telemetry = Telemetry()
        own = settings_in(folder, **{"max_reads_waiting": 8, "read_timeout_s": 60.0, **settings})
        self.lane = Lane("test", "reading", LiveSettings(own), self.telemetry)
        self.go, self.ran = threading.Event(), list[str]()

    def work(self, word: str) -> Callable[[], str]:
        def run() -> str:
            self.go.wait(60)
            self.ran.append(word)
            return word

        return run

    def problems(self) -> list[str]:
        return self.telemetry.troubles.texts(details=True, blocking=True)

    def bounds(self) -> list[str]:
        return [hits.bound for hits in self.telemetry.bounds.last_hour()]


def run(folder: Path, story: Callable[[Held], Awaitable[None]], **settings: float) -> Held:
    held = Held(folder, **settings)
    try:
        asyncio.run(story(held))  # type: ignore[arg-type]
    finally:
        held.go.set()
        held.lane.close()
    return held


def test_the_loop_turns_while_a_thread_is_held_up(tmp_path: Path) -> None:
    async def story(held: Held) -> None:
        asked = asyncio.create_task(held.lane.run("ann", held.work("a")))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not asked.done()
        held.go.set()
        assert await asked == "a"

    assert run(tmp_path, story).bounds() == []


def test_so_many_wait_and_no_user_takes_all_places(tmp_path: Path) -> None:
    async def story(held: Held) -> None:
        users = ["ann", "ann", "bob", "bob", "eve", "eve"]
        asked = [asyncio.create_task(held.lane.run(user, held.work(user))) for user in users]
        await asyncio.sleep(0)
        with pytest.raises(
            BusyError, match=r"2 of your requests wait for reading, the most .* max_reads_waiting 8"
        ):
            await held.lane.run("ann", held.work("more"))
        assert held.bounds() == ["max_reads_waiting"] and held.problems() == []
        asked += [asyncio.create_task(held.lane.run("joe", held.work("joe"))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="8 requests wait"):
            await held.lane.run("sue", held.work("more"))
        assert held.problems() == ["8 requests wait for reading: more are refused"]
        held.go.set()
        assert await asyncio.gather(*asked) == [*users, "joe", "joe"]
        assert await held.lane.run("ann", held.work("again")) == "again"

    assert "more" not in run(tmp_path, story).ran


def test_an_answer_that_does_not_come_is_told(tmp_path: Path) -> None:
    async def story(held: Held) -> None:
        first = asyncio.create_task(held.lane.run("ann", held.work("first")))
        second = asyncio.create_task(held.lane.run("bob", held.work("second")))
        with pytest.raises(LateError, match=r"reading takes more than 0\.01 s at the moment"):
            await first
        with pytest.raises(LateError, match=r"others' requests keep reading busy for 0\.01 s"):
            await second
        assert held.problems() == ["reading takes more than 0.01 s"], "what waits behind it tells nothing new"
        held.go.set()
        await until_true(lambda: not held.lane._waiting)

    held = run(tmp_path, story, read_timeout_s=0.01)
    assert held.ran == ["first"], "nobody waits for the second any more"


def test_a_request_that_was_given_up_keeps_its_place_until_the_thread_has_come_to_it(tmp_path: Path) -> None:
    async def story(held: Held) -> None:
        for _ in range(2):
            with pytest.raises(LateError):
                await held.lane.run("ann", held.work("late"))
        with pytest.raises(BusyError, match="2 of your requests wait"):
            await held.lane.run("ann", held.work("more"))

    run(tmp_path, story, read_timeout_s=0.01)


def test_nothing_is_done_for_a_client_that_has_gone(tmp_path: Path) -> None:
    async def story(held: Held) -> None:
        first, gone = (asyncio.create_task(held.lane.run(user, held.work(user))) for user in ("ann", "bob"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        held.go.set()
        await first
        assert await held.lane.run("eve", held.work("eve")) == "eve"

    assert run(tmp_path, story).ran == ["ann", "eve"]


def test_an_error_is_the_callers(tmp_path: Path) -> None:
    async def story(held: Held) -> None:
        held.go.set()
        with pytest.raises(KeyError):
            await held.lane.run("ann", lambda: {}["x"])
        assert await held.lane.run("ann", held.work("a")) == "a"

    run(tmp_path, story)
