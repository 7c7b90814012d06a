"""The contract of `ports.Scheduler`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import pytest

from bftrainer.model import Pilot
from bftrainer.ports import Scheduler, SchedulerError


class SchedulerUnderTest(Protocol):
    """A scheduler whose node `idle` is idle until `take` is called, and whose node `busy` never is."""

    idle: str
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
            assert snapshot.idle == {machine.idle}
            assert {node.name for node in snapshot.nodes} == {machine.idle, machine.busy}

        _run(machine, scenario)

    def test_a_pilot_lives_until_it_is_cancelled(self, machine: SchedulerUnderTest) -> None:
        pilot = Pilot(tag="0123abcd", node=machine.idle)

        async def scenario(scheduler: Scheduler) -> None:
            await scheduler.poll()
            assert await scheduler.pilots() == ()
            await scheduler.submit(pilot, "a secret")
            await _until(scheduler, lambda found: found == (pilot,))
            assert (await scheduler.poll()).idle == {machine.idle}, "a node that we hold stays ours to use"
            await scheduler.cancel([pilot])
            await _until(scheduler, lambda found: found == ())
            await scheduler.cancel([pilot])  # once more does no harm

        _run(machine, scenario)

    def test_a_pilot_survives_the_daemon_and_is_found_again(self, machine: SchedulerUnderTest) -> None:
        pilot = Pilot(tag="0123abcd", node=machine.idle)

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
                await scheduler.submit(Pilot(tag="0123abcd", node=machine.busy), "a secret")

        _run(machine, scenario)

    def test_a_taken_node_loses_its_pilot(self, machine: SchedulerUnderTest) -> None:
        async def scenario(scheduler: Scheduler) -> None:
            await scheduler.poll()
            await scheduler.submit(Pilot(tag="0123abcd", node=machine.idle), "a secret")
            await _until(scheduler, lambda found: len(found) == 1)
            machine.take()
            async with asyncio.timeout(20):
                while (await scheduler.poll()).idle:
                    await asyncio.sleep(0.02)
            await _until(scheduler, lambda found: found == ())

        _run(machine, scenario)


def _run(machine: SchedulerUnderTest, scenario: Callable[[Scheduler], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        scheduler = machine.make()
        try:
            await scenario(scheduler)
        finally:
            await scheduler.cancel(await scheduler.pilots())
            await scheduler.close()

    asyncio.run(whole())


async def _until(scheduler: Scheduler, condition: Callable[[tuple[Pilot, ...]], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition(await scheduler.pilots()):
            await asyncio.sleep(0.02)
