"""Work in the background: waiting for it ends, whenever it ends itself."""

from __future__ import annotations

import asyncio

import pytest

from bftrainer.background import Background


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
