"""The contract of `ports.Scheduler`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import pytest

from bftrainer.errors import SchedulerError
from bftrainer.model.machine import Pilot
from bftrainer.ports import Scheduler

TAG = "0123abcd" * 4
LONG_S = 60.0
"""For what takes a batch system seconds, on a busy machine."""


class SchedulerUnderTest(Protocol):
    """A scheduler whose node `idle` is idle until `take` is called, `other` for ever, and `busy` never."""

    idle: str
    other: str
    busy: str

    def make(self) -> Scheduler:
        """A scheduler object; a second one sees the same machine, as after a restart of the daemon."""
        ...

    def take(self) -> None:
        """Have the main scheduler take the idle node."""
        ...


class SchedulerContract:
    """Needs a fixture `machine`: a `SchedulerUnderTest`."""

    def test_sees_idle_and_busy_nodes(self, machine: SchedulerUnderTest) -> None:
        async def scenario(scheduler: Scheduler) -> None:
            snapshot = await scheduler.poll()
            assert snapshot.idle == {machine.idle, machine.other}
            assert {node.name for node in snapshot.nodes} == {machine.idle, machine.other, machine.busy}
            assert snapshot.claims == ()

        _run(machine, scenario)

    def test_a_pilot_lives_until_it_is_cancelled(self, machine: SchedulerUnderTest) -> None:
        pilot = Pilot(tag=TAG, node=machine.idle)

        async def scenario(scheduler: Scheduler) -> None:
            await scheduler.poll()
            assert await scheduler.pilots() == ()
            await scheduler.submit(pilot, "a secret")
            await _until(scheduler, lambda found: found == (pilot,))
            snapshot = await scheduler.poll()
            assert machine.idle in snapshot.idle, "a node that we hold stays ours to use"
            assert snapshot.pilots == (pilot,)
            assert snapshot.claims == (), "nobody waits"
            await scheduler.cancel([pilot])
            await _until(scheduler, lambda found: found == ())
            await scheduler.cancel([pilot])  # once more does no harm
            assert not await scheduler.failures([pilot]), "it was told to end"

        _run(machine, scenario)

    def test_several_pilots_end_together_and_others_live_on(self, machine: SchedulerUnderTest) -> None:
        here, there = Pilot(tag=TAG, node=machine.idle), Pilot(tag="89abcdef" * 4, node=machine.other)
        never = Pilot(tag="4567cdef" * 4, node=machine.idle)

        async def scenario(scheduler: Scheduler) -> None:
            await scheduler.poll()
            await asyncio.gather(*(scheduler.submit(pilot, "a secret") for pilot in (here, there)))
            await _until(scheduler, lambda found: set(found) == {here, there})
            await scheduler.cancel([never])
            assert set(await scheduler.pilots()) == {here, there}
            await scheduler.cancel([here])
            await _until(scheduler, lambda found: found == (there,))
            await scheduler.cancel([here, there])
            await _until(scheduler, lambda found: found == ())

        _run(machine, scenario)

    def test_a_pilot_survives_the_daemon_and_is_found_again(self, machine: SchedulerUnderTest) -> None:
        pilot = Pilot(tag=TAG, node=machine.idle)

        async def scenario(scheduler: Scheduler) -> None:
            await scheduler.poll()
            await scheduler.submit(pilot, "a secret")
            await scheduler.close()
            again = machine.make()
            await again.poll()
            await _until(again, lambda found: found == (pilot,))
            await again.cancel([pilot])
            await _until(again, lambda found: found == ())
            await again.close()

        _run(machine, scenario)

    def test_no_pilot_on_a_busy_node(self, machine: SchedulerUnderTest) -> None:
        async def scenario(scheduler: Scheduler) -> None:
            await scheduler.poll()
            with pytest.raises(SchedulerError, match=machine.busy):
                await scheduler.submit(Pilot(tag=TAG, node=machine.busy), "a secret")

        _run(machine, scenario)

    def test_a_taken_node_loses_its_pilot(self, machine: SchedulerUnderTest) -> None:
        async def scenario(scheduler: Scheduler) -> None:
            await scheduler.poll()
            await scheduler.submit(Pilot(tag=TAG, node=machine.idle), "a secret")
            await _until(scheduler, lambda found: [p.pending for p in found] == [""])
            machine.take()
            async with asyncio.timeout(LONG_S):
                while machine.idle in (await scheduler.poll()).idle:
                    await asyncio.sleep(0.02)
            await _until(scheduler, lambda found: found == ())

        _run(machine, scenario)


def _run(machine: SchedulerUnderTest, scenario: Callable[[Scheduler], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        scheduler = machine.make()
        try:
            await scenario(scheduler)
        finally:
            await scheduler.close()
            last = machine.make()  # the story may have closed the first one: nothing can be asked of it
            await last.cancel(await last.pilots())
            await last.close()

    asyncio.run(whole())


async def _until(scheduler: Scheduler, condition: Callable[[tuple[Pilot, ...]], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition(await scheduler.pilots()):
            await asyncio.sleep(0.02)
