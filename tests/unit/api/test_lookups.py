"""Look-ups that hang: they keep nobody else waiting, and what was known counts on."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from bftrainer.api.lookups import AT_ONCE, KEPT_S, Lookups
from bftrainer.api.transport.admission import BusyError
from tests.support.waiting import until_true

QUICK_S = 0.2


class Directory:
    """Says who has which number, at once or never."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.asked: list[int] = []

    def __call__(self, uid: int) -> str:
        self.asked.append(uid)
        self.answers.wait(30)
        if uid < 0:
            raise LookupError(f"nobody is {uid}")
        return f"user{uid}"

    @contextmanager
    def hanging(self) -> Iterator[None]:
        self.answers.clear()
        try:
            yield
        finally:
            self.answers.set()


def told(tell: Callable[[Directory, Lookups[int, str], list[float]], Awaitable[None]]) -> None:
    async def run() -> None:
        directory, now = Directory(), [1000.0]
        async with asyncio.timeout(20):
            await tell(directory, Lookups(directory, what="NSS", timeout_s=QUICK_S, now=lambda: now[0]), now)

    asyncio.run(run())


def test_an_answer_counts_for_a_minute() -> None:
    async def tell(directory: Directory, users: Lookups[int, str], now: list[float]) -> None:
        assert [await users.find(1), await users.find(1), await users.find(2)] == ["user1", "user1", "user2"]
        assert directory.asked == [1, 2]
        for _ in range(2):
            with pytest.raises(LookupError, match="nobody is -1"):
                await users.find(-1)
        assert directory.asked == [1, 2, -1]
        now[0] += KEPT_S + 1
        assert await users.find(1) == "user1"
        assert directory.asked == [1, 2, -1, 1]

    told(tell)


def test_while_the_directory_hangs_those_that_are_known_are_served() -> None:
    async def tell(directory: Directory, users: Lookups[int, str], now: list[float]) -> None:
        await users.find(1)
        now[0] += KEPT_S + 1
        with directory.hanging():
            assert await users.find(1) == "user1"
            with pytest.raises(BusyError, match=r"NSS does not answer within 0\.2 s") as refused:
                await users.find(2)
            assert refused.value.status == 503
        assert await users.find(2) == "user2"

    told(tell)


def test_look_ups_that_hang_are_few_and_stop_nothing_else() -> None:
    async def tell(directory: Directory, users: Lookups[int, str], now: list[float]) -> None:
        with directory.hanging():
            before = threading.active_count()
            asked = [asyncio.create_task(users.find(n // 2)) for n in range(100)]
            await asyncio.wait(asked)
            assert all(isinstance(task.exception(), BusyError) for task in asked)
            assert threading.active_count() - before <= AT_ONCE
            assert await asyncio.to_thread(lambda: "others' threads are free") == "others' threads are free"

    told(tell)


def test_keys_of_one_group_are_looked_up_one_at_a_time_and_keep_no_others_waiting() -> None:
    """Also those that nobody waits for any more: else one user's many numbers would fill memory."""
    directory = Directory()

    async def tell() -> None:
        users = Lookups(directory, what="NSS", timeout_s=20.0, group=lambda uid: uid % 10 or uid)
        with directory.hanging():
            for n in range(100):
                gone = asyncio.create_task(users.find(1001 + 10 * n))
                await asyncio.sleep(0)
                gone.cancel()
            waits = [asyncio.create_task(users.find(uid)) for uid in (1011, 10, 20, 21)]
            await until_true(lambda: len(directory.asked) == AT_ONCE - 1)
            assert sorted(directory.asked) == [10, 20, 1001] and len(users._asked) == AT_ONCE - 1
        assert await asyncio.gather(*waits) == ["user1011", "user10", "user20", "user21"]

    asyncio.run(tell())


def test_a_look_up_that_hangs_does_not_keep_the_process_from_ending() -> None:
    directory = Directory()

    async def once() -> None:
        with pytest.raises(BusyError):
            await Lookups(directory, what="NSS", timeout_s=QUICK_S).find(1)

    with directory.hanging():
        began = time.monotonic()
        asyncio.run(once())
        assert time.monotonic() - began < 10
        assert all(thread.daemon for thread in threading.enumerate() if thread.name == "lookup")


def test_an_error_that_is_kept_keeps_nothing_of_those_that_were_told_it() -> None:
    """Else memory would grow with every request of a user that is not known."""

    async def tell(directory: Directory, users: Lookups[int, str], now: list[float]) -> None:
        lengths = []
        for _ in range(4):
            with pytest.raises(LookupError) as told_it:
                await users.find(-1)
            lengths.append(len(traceback.extract_tb(told_it.value.__traceback__)))
        assert len(set(lengths)) == 1 and directory.asked == [-1]

    told(tell)
