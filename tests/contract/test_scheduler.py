"""The local scheduler passes the scheduler's contract with real processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.local.scheduler import LocalScheduler, Playback
from bftrainer.testing.memory import Machine, MemoryScheduler
from bftrainer.testing.scheduler import SchedulerContract


class Clock:
    """The wall clock, with the power to skip."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def now(self) -> float:
        return time.time() + self.skipped

    def behind_s(self) -> float:
        return 0.0


class LocalMachine:
    """Slots of this machine under a scheduler like the local one."""

    idle, busy, other = "n1", "n2", "n3"

    def __init__(self, folder: Path, kind: type[LocalScheduler] = LocalScheduler) -> None:
        self._folder, self._clock, self._kind = folder, Clock(), kind
        self._playback = Playback(begin=0.0, origin=self._clock.now(), speed=1.0)

    def make(self) -> LocalScheduler:
        return self._kind(
            nodes=frozenset({self.idle, self.other, self.busy}),
            changes=[
                NodesChanged(time=0.0, joined=frozenset({self.idle, self.other})),
                NodesChanged(time=1000.0, left=frozenset({self.idle})),
                NodesChanged(time=9e9),
            ],
            playback=self._playback,
            agents_at=str(self._folder / "no-daemon.sock"),
            log_dir=self._folder,
            orphan_s=60.0,
            clock=self._clock,
        )

    def take(self) -> None:
        self._clock.skipped += 1000.0


@pytest.fixture
def machine(tmp_path: Path) -> LocalMachine:
    return LocalMachine(tmp_path)


class TestLocalScheduler(SchedulerContract):
    pass


def test_pilots_die_at_the_moment_of_the_log_without_a_poll(tmp_path: Path) -> None:
    one = frozenset({"n1"})
    scheduler = LocalScheduler(
        nodes=one,
        changes=[
            NodesChanged(time=0.0, joined=one),
            NodesChanged(time=150.0, left=one),
            NodesChanged(time=9e9),
        ],
        playback=Playback(begin=0.0, origin=time.time(), speed=100.0),
        agents_at=str(tmp_path / "no-daemon.sock"),
        log_dir=tmp_path,
        orphan_s=60.0,
        clock=Clock(),
    )

    async def scenario() -> float:
        begin = time.monotonic()
        await scheduler.poll()
        await scheduler.submit(Pilot(tag="0123abcd", node="n1"), "a secret")
        async with asyncio.timeout(20):
            while await scheduler.pilots():
                await asyncio.sleep(0.01)
        await scheduler.close()
        return time.monotonic() - begin

    assert asyncio.run(scenario()) >= 1.4


class MemoryMachine:
    idle, busy, other = "n1", "n2", "n3"

    def __init__(self) -> None:
        self._machine = Machine({self.idle, self.other}, {self.busy})

    def make(self) -> MemoryScheduler:
        return MemoryScheduler(self._machine, time.time)

    def take(self) -> None:
        self._machine.take(self.idle)


class TestMemoryScheduler(SchedulerContract):
    @pytest.fixture
    def machine(self) -> MemoryMachine:
        return MemoryMachine()
