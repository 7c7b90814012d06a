"""An agent's turns over real sockets: who dies, hangs or talks nonsense holds up nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bftrainer.agent.turns import table
from bftrainer.agent.turns.server import TurnServer

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Story = Callable[[TurnServer], Awaitable[None]]


def played(story: Story) -> None:
    async def play() -> None:
        server = TurnServer()
        try:
            await asyncio.wait_for(story(server), 60.0)
        finally:
            server.close()

    asyncio.run(play())


async def worker(server: TurnServer, trainer: int, says: bytes = b"take\n") -> tuple[Reader, Writer]:
    reader, writer = await asyncio.open_unix_connection(f"\0{await server.open()}")
    writer.write(f"{trainer} node\n".encode() + says)
    return reader, writer


def test_the_turn_of_a_worker_that_dies_or_gives_it_is_the_next_ones() -> None:
    async def story(server: TurnServer) -> None:
        first, holder = await worker(server, 1)
        assert await first.readline() == b"go\n"
        second, other = await worker(server, 2)
        third, last = await worker(server, 3)
        holder.close()
        assert await second.readline() == b"go\n"
        other.write(b"give 5 10\n")
        assert await third.readline() == b"go\n"
        last.close()

    played(story)


def test_one_that_hangs_is_told_that_it_has_lost_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FIRST_S", 0.05)

    async def story(server: TurnServer) -> None:
        first, holder = await worker(server, 1)
        assert await first.readline() == b"go\n"
        second, _ = await worker(server, 2)
        assert await second.readline() == b"go\n"
        assert await first.readline() == b"lost\n"
        holder.close()

    played(story)


def test_workers_that_leave_wait_for_nobody_until_they_have_met_others() -> None:
    async def story(server: TurnServer) -> None:
        first, holder = await worker(server, 1)
        assert await first.readline() == b"go\n"
        server.hurry(2)
        second, other = await worker(server, 2)
        assert await second.readline() == b"go\n"
        server.calm(2)
        other.write(b"give 0 0\ntake\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(second.readline(), 0.05)
        holder.close()

    played(story)


@pytest.mark.parametrize("says", [b"\n", b"give -1\n", b"give a b\n", b"\xff\n", b"x" * 1000])
def test_one_that_talks_nonsense_is_cut_off_and_loses_its_turn(says: bytes) -> None:
    async def story(server: TurnServer) -> None:
        first, _ = await worker(server, 1, b"take\n" + says)
        second, _ = await worker(server, 2)
        assert await second.readline() == b"go\n"
        with pytest.raises((EOFError, ConnectionError)):
            await first.readexactly(100)

    played(story)


def test_a_report_has_the_means_since_the_workers_there_changed() -> None:
    async def story(server: TurnServer) -> None:
        reader, writer = await worker(server, 1)
        assert server.usage(7, 0) is None
        assert await reader.readline() == b"go\n" and server.usage(1, 10) is None, "no steps yet"
        writer.write(b"give 5 10\ntake\n")
        assert await reader.readline() == b"go\n"
        use = server.usage(1, 20)
        assert use is not None and (use["peak"], use["memory"], use["beside"]) == (5, 10, 0)
        assert use["held_s"] > 0.0 and use["step_s"] > 0.0
        other, _ = await worker(server, 2)
        writer.write(b"give 5 10\n")
        assert await other.readline() == b"go\n"
        assert server.usage(1, 21) is None, "another computes there now"
        last = server.usage(1, 31)
        assert last is not None and last["beside"] == 2

    played(story)
