"""Users' work in one thread: they take turns, one piece has an end, and nobody waits for the thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from bftrainer import threads
from bftrainer.threads import FairThread, OverTimeError, check, loop_with_gaps
from tests.support.waiting import until


class Held:
    """A thread whose first piece of work waits until `go`."""

    def __init__(self, limit_s: float = 60.0) -> None:
        self.beyond, self.ran, self.go = list[str](), list[str](), threading.Event()
        self.thread = FairThread("test", limit_s, self.beyond.append)

    def work(self, word: str) -> Callable[[], str]:
        def run() -> str:
            self.go.wait(60)
            self.ran.append(word)
            return word

        return run


@pytest.fixture
def held() -> Iterator[Held]:
    own = Held()
    yield own
    own.go.set()
    own.thread.close()


def busy() -> None:
    """Work without an end, but for its checks."""
    while True:
        check()


def test_users_take_turns_and_the_work_of_one_keeps_its_order(held: Held) -> None:
    words = [f"ann {n}" for n in range(5)] + ["bob 0", "bob 1", "eve 0"]
    pieces = [held.thread.submit(word[:3], held.work(word)) for word in words]
    held.go.set()
    assert [piece.result(60) for piece in pieces] == words
    turns = ["ann 0", "bob 0", "eve 0", "ann 1", "bob 1", "ann 2", "ann 3", "ann 4"]
    assert held.ran in (turns, ["ann 0", "ann 1", "bob 0", "eve 0", "ann 2", "bob 1", "ann 3", "ann 4"])


def test_a_piece_that_takes_too_long_ends_and_its_user_is_told() -> None:
    held = Held(limit_s=0.05)
    long, next_one = held.thread.submit("ann", busy), held.thread.submit("bob", lambda: "b")
    assert next_one.result(60) == "b"
    with pytest.raises(OverTimeError, match=r"more than 0\.05 s of work. Ask for less"):
        long.result(60)
    until(lambda: held.beyond == ["ann"], "the user is told")
    held.thread.close()


def test_a_user_is_told_of_a_piece_that_takes_too_long_and_never_checks() -> None:
    held = Held(limit_s=0.05)

    def unchecked() -> str:
        while time.thread_time() < 0.2:
            pass
        return "done"

    assert held.thread.submit("ann", unchecked).result(60) == "done"
    until(lambda: held.beyond == ["ann"], "the user is told")
    held.thread.close()


def test_time_in_which_the_processor_does_not_work_on_it_does_not_count() -> None:
    held = Held(limit_s=0.05)

    def waits() -> str:
        time.sleep(0.2)
        check()
        return "done"

    assert held.thread.submit("ann", waits).result(60) == "done"
    held.thread.close()


def test_work_ends_when_its_caller_has_left(held: Held) -> None:
    async def story() -> None:
        task = asyncio.create_task(held.thread.run("ann", busy))
        while not held.thread._thread:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert held.thread.submit("bob", lambda: "b").result(60) == "b", "the thread is free again"
    assert held.beyond == []


def test_an_error_is_its_callers_and_the_thread_goes_on(held: Held) -> None:
    def wrong() -> Any:
        return {}["x"]

    with pytest.raises(KeyError):
        held.thread.submit("ann", wrong).result(60)
    assert held.thread.submit("ann", lambda: 1).result(60) == 1


@pytest.mark.parametrize("how", ["fair thread", "thread of its own", "executor"])
def test_work_that_runs_out_of_items_is_told_to_who_awaits_it(held: Held, how: str) -> None:
    """A future of asyncio takes no StopIteration: who awaits it waits for ever."""

    def runs_out() -> None:
        next(iter(()))

    async def story() -> None:
        loop = asyncio.get_running_loop()
        made = {
            "fair thread": lambda: held.thread.run("ann", runs_out),
            "thread of its own": lambda: threads.in_thread("test", runs_out),
            "executor": lambda: loop.run_in_executor(None, runs_out),
        }
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(made[how](), 10)

    with asyncio.Runner(loop_factory=loop_with_gaps) as runner:
        runner.run(story())


def test_what_waits_at_the_end_is_cancelled(held: Held) -> None:
    first, second = (held.thread.submit("ann", held.work(word)) for word in ("a", "b"))
    until(first.running, "the first has begun")
    held.thread.close()
    held.go.set()
    assert first.result(60) == "a"
    with pytest.raises(CancelledError):
        second.result(60)
    with pytest.raises(CancelledError):
        held.thread.submit("ann", held.work("c")).result(60)


def test_elsewhere_a_check_does_nothing() -> None:
    check()


def test_no_process_waits_for_the_thread_to_end() -> None:
    script = (
        "import threading\nfrom bftrainer.threads import FairThread\n"
        "begun = threading.Event()\n"
        "def work():\n    begun.set()\n    while True:\n        sum(range(1000))\n"
        "FairThread('test', 60.0).submit('ann', work)\nassert begun.wait(60)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


class Steps:
    """Work in a thread that counts its steps until it is told to end."""

    def __init__(self) -> None:
        self.count, self.over, self.thread = 0, False, FairThread("test", 60.0)

    def work(self) -> None:
        while not self.over:
            self.count += 1
            check()

    def beside(self, turn: Callable[[Steps], None]) -> None:
        """Run an event loop one of whose turns is `turn`."""

        async def story() -> None:
            piece = self.thread.submit("ann", self.work)
            while self.count < 3:
                await asyncio.sleep(0)
            turn(self)
            self.over = True
            await asyncio.wrap_future(piece)

        with asyncio.Runner(loop_factory=loop_with_gaps) as runner:
            runner.run(story())
        self.thread.close()


def test_work_stands_still_while_the_event_loop_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GIVES_WAY_S", 60.0)

    def turn(steps: Steps) -> None:
        seen = -1
        while seen != steps.count:  # it goes on until its next look
            seen = steps.count
            time.sleep(20 * threads.CHECKED_S)
        time.sleep(20 * threads.CHECKED_S)
        assert steps.count == seen

    Steps().beside(turn)


def test_an_event_loop_that_never_waits_does_not_stop_work_for_ever() -> None:
    def turn(steps: Steps) -> None:
        for _ in range(3):
            seen = steps.count
            until(lambda seen=seen: steps.count > seen, "the work goes on")

    Steps().beside(turn)


def test_work_goes_on_at_once_when_the_event_loop_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GIVES_WAY_S", 60.0)
    Steps().beside(lambda steps: None)
    after = Steps()
    piece = after.thread.submit("ann", after.work)
    until(lambda: after.count > 100_000, "it goes on", seconds=20)
    after.over = True
    piece.result(60)
