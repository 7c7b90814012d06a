"""The recorder: it goes on whatever fails, and ends when it is told to."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bftrainer.errors import BftrainerError, SchedulerError
from bftrainer.model.machine import Node, NodeState, Snapshot
from bftrainer.recording import recorder as recorder_module
from bftrainer.recording.lines import header
from bftrainer.recording.recorder import SiteRecorder
from bftrainer.recording.series import Series
from bftrainer.traces.logs import load
from tests.support.no_nodes import NoNodes

HEADER = header("slurm", "0", 10.0)


class Clock:
    time = 1763868000.0

    def now(self) -> float:
        self.time += 1.0
        return self.time

    def behind_s(self) -> float:
        return 0.0


class Machine(NoNodes):
    """A machine with one node, whose polls do what the test says; the last one tells the recorder to stop."""

    def __init__(self, clock: Clock, *steps: Callable[[], None]) -> None:
        self.clock, self.steps, self.stop = clock, list(steps), asyncio.Event()
        self.closed = False

    async def poll(self) -> Snapshot:
        if not self.steps:
            self.stop.set()
        else:
            self.steps.pop(0)()
        return Snapshot(time=self.clock.now(), nodes=(Node(name="n1", state=NodeState.IDLE),))

    async def close(self) -> None:
        self.closed = True


def down() -> None:
    raise SchedulerError("slurmctld is down: connection of user alice refused")


def fine() -> None:
    pass


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], None], most_mb: float = 10.0
) -> tuple[SiteRecorder, list[str]]:
    said: list[str] = []
    clock = Clock()
    monkeypatch.setattr(recorder_module, "LONGEST_S", 0.01)
    series = Series(folder, rotate_mb=1.0, most_mb=most_mb)
    machine = Machine(clock, *steps)
    recorder = SiteRecorder(machine, series, clock, header=HEADER, poll_s=0.01, say=said.append)
    try:
        asyncio.run(recorder.run(machine.stop))
    finally:
        series.close()
        assert machine.closed
    return recorder, said


def test_polls_without_an_answer_are_recorded_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, said = run(tmp_path, monkeypatch, fine, down, down, fine)
    assert (recorder.counts.snapshots, recorder.counts.failed) >= (2, 2)
    assert len(said) == 2 and "slurmctld is down" in said[0] and "answers" in said[1]
    log = load(tmp_path)
    assert log.broken == 0 and "2 polls without an answer" in log.notes[1]
    assert not any(b"alice" in path.read_bytes() for path in tmp_path.iterdir())


def test_what_a_full_disk_swallows_is_counted_and_the_next_line_stands_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Series.append

    def full(self: Series, line: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    recorder, said = run(
        tmp_path,
        monkeypatch,
        fine,
        lambda: monkeypatch.setattr(Series, "append", full),
        lambda: monkeypatch.setattr(Series, "append", real),
    )
    assert recorder.counts.unwritten == 1
    assert "cannot be written: No space left" in said[0] and "can be written" in said[1]
    packed = b"".join(gzip.decompress(path.read_bytes()) for path in tmp_path.iterdir())
    assert packed.count(b'"idle"') == 2


def test_a_full_series_ends_the_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BftrainerError, match="--most-mb"):
        run(tmp_path, monkeypatch, *[fine] * 100, most_mb=0.0003)


def test_a_poll_that_hangs_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    class Hanging(NoNodes):
        async def poll(self) -> Snapshot:
            stop.set()
            await asyncio.sleep(600)
            raise AssertionError

    stop = asyncio.Event()
    series = Series(tmp_path, rotate_mb=1.0, most_mb=1.0)
    recorder = SiteRecorder(Hanging(), series, Clock(), header=HEADER, poll_s=10.0, say=print)
    asyncio.run(asyncio.wait_for(recorder.run(stop), 30))
    series.close()
