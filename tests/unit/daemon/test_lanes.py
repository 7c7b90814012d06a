"""What takes long has threads of its own, and a bound for those that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from bftrainer.api.errors import LateError
from bftrainer.api.transport.admission import BusyError
from bftrainer.daemon import lanes
from bftrainer.daemon.lanes import Lane
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.waiting import until_true


class Held:
    """A lane whose thread is held up until `go`."""

    def __init__(self) -> None:
        self.telemetry = Telemetry()
        self.lane = Lane("test", "reading", self.telemetry)
        self.begun, self.go, self.ran = threading.Event(), threading.Event(), list[str]()

    def work(self, word: str) -> Callable[[], str]:
        def run() -> str:
            self.begun.set()
            self.go.wait(60)
            self.ran.append(word)
            return word

        return run

    def problems(self) -> list[str]:
        return self.telemetry.troubles.texts(details=True, blocking=True)

    def bounds(self) -> list[str]:
        return [hits.bound for hits in self.telemetry.bounds.last_hour()]


@pytest.fixture(autouse=True)
def _few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "READS_WAITING", 8)
    monkeypatch.setattr(lanes, "READ_S", 60.0)


def run(story: Callable[[Held], Awaitable[None]]) -> Held:
    held = Held()
    try:
        asyncio.run(story(held))  # type: ignore[arg-type]
    finally:
        held.go.set()
        held.lane.close()
    return held


def test_the_loop_turns_while_a_thread_is_held_up() -> None:
    async def story(held: Held) -> None:
        asked = asyncio.create_task(held.lane.run("ann", held.work("a")))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not asked.done()
        held.go.set()
        assert await asked == "a"

    assert run(story).bounds() == []


def test_so_many_wait_and_no_user_takes_all_places() -> None:
    async def story(held: Held) -> None:
        users = ["ann", "ann", "bob", "bob", "eve", "eve"]
        asked = [asyncio.create_task(held.lane.run(user, held.work(user))) for user in users]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match=r"2 of your requests wait for reading, the most for one user"):
            await held.lane.run("ann", held.work("more"))
        assert held.bounds() == ["max_reads_waiting"] and held.problems() == []
        asked += [asyncio.create_task(held.lane.run("joe", held.work("joe"))) for _ in range(2)]
        await asyncio.sleep(0)
        asked.append(asyncio.create_task(held.lane.run("sue", held.work("sue"))))
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="8 requests wait"):
            await held.lane.run("sue", held.work("more"))
        assert held.problems() == ["8 requests wait for reading: more are refused"]
        held.go.set()
        assert await asyncio.gather(*asked) == [*users, "joe", "joe", "sue"], "everybody has a place"
        assert await held.lane.run("ann", held.work("again")) == "again"

    assert "more" not in run(story).ran


def test_an_answer_that_does_not_come_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "READ_S", 0.01)

    async def story(held: Held) -> None:
        first = asyncio.create_task(held.lane.run("ann", held.work("first")))
        second = asyncio.create_task(held.lane.run("bob", held.work("second")))
        with pytest.raises(LateError, match=r"reading takes more than 0\.01 s\. "):
            await first
        with pytest.raises(LateError, match=r"others' requests keep reading busy for 0\.01 s"):
            await second
        assert held.problems() == ["reading takes more than 0.01 s"], "what waits behind it tells nothing new"
        held.go.set()
        await until_true(lambda: not held.lane._waiting)

    held = run(story)
    assert held.ran == ["first"], "nobody waits for the second any more"


def test_a_request_that_was_given_up_keeps_its_place_until_the_thread_has_come_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(held: Held) -> None:
        before = asyncio.create_task(held.lane.run("bob", held.work("before")))
        await until_true(held.begun.is_set)
        monkeypatch.setattr(lanes, "READ_S", 0.01)
        for _ in range(2):
            with pytest.raises(LateError):
                await held.lane.run("ann", held.work("late"))
        with pytest.raises(BusyError, match="2 of your requests wait"):
            await held.lane.run("ann", held.work("more"))
        held.go.set()
        await before

    run(story)


def test_nothing_is_done_for_a_client_that_has_gone() -> None:
    async def story(held: Held) -> None:
        first, gone = (asyncio.create_task(held.lane.run(user, held.work(user))) for user in ("ann", "bob"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        held.go.set()
        await first
        assert await held.lane.run("eve", held.work("eve")) == "eve"

    assert run(story).ran == ["ann", "eve"]


def test_an_error_is_the_callers() -> None:
    async def story(held: Held) -> None:
        held.go.set()
        with pytest.raises(KeyError):
            await held.lane.run("ann", lambda: {}["x"])
        assert await held.lane.run("ann", held.work("a")) == "a"

    run(story)
