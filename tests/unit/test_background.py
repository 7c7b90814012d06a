"""Work in the background: waiting for it ends, whenever it ends itself."""

from __future__ import annotations

import asyncio

import pytest

from bftrainer.background import Background, end_others


async def nothing() -> None:
    pass


async def failing() -> None:
    raise ValueError("no")


@pytest.mark.timeout(20)
def test_work_that_has_just_ended_is_waited_for_only_until_it_is_forgotten() -> None:
    """In one turn of the loop the work ends and somebody begins to wait: its callbacks run in the next."""

    async def scenario() -> None:
        background = Background()
        background.start(nothing())
        waits = asyncio.get_running_loop().create_task(background.wait())
        assert await asyncio.wait({waits}, timeout=10) == ({waits}, set())
        await waits

    asyncio.run(scenario())


def test_what_work_raised_is_raised() -> None:
    async def scenario() -> None:
        background = Background()
        background.start(failing())
        with pytest.raises(ValueError, match="no"):
            await background.wait()
        await background.wait()

    asyncio.run(scenario())


def test_a_process_that_is_being_started_keeps_nothing_from_ending() -> None:
    async def scenario() -> None:
        pipe = asyncio.subprocess.PIPE
        starts = asyncio.create_subprocess_exec("sleep", "60", stdin=pipe, stdout=pipe, stderr=pipe)
        task = asyncio.create_task(starts)
        while len(asyncio.all_tasks()) < 3:  # this one, the one that starts it, and its pipes'
            await asyncio.sleep(0)
        await end_others()
        assert task.done()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_a_task_that_does_not_end_at_its_first_cancel_is_cancelled_again() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            while True:
                await asyncio.sleep(0.01)

    async def scenario() -> None:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await end_others()
        assert task.cancelled()

    asyncio.run(scenario())
