"""The daemon says that its disk gets full before it is, and that it hangs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from bftrainer.daemon import disk
from bftrainer.daemon.disk import Disk
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.sources import load
from bftrainer.state_dir.room import Room, room_of
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.waiting import until_true


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "CHECK_S", 0.01)


def watched(folder: Path, answers: list[Room | OSError]) -> tuple[Disk, Telemetry]:
    def measure(asked: Path) -> Room:
        assert asked == folder
        found = answers[0] if len(answers) == 1 else answers.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    telemetry = Telemetry()
    settings = LiveSettings(load({"state_dir": folder, "min_free_mb": 100, "min_free_files": 10}, environ={}))
    return Disk(folder, settings, telemetry, measure), telemetry


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Room(99.0, None), "99 MB are free, less than min_free_mb 100"),
        (Room(5_000.0, 9), "9 more files (inodes) are possible, less than min_free_files 10"),
        (OSError(5, "Input/output error"), "it cannot be asked how full it is: Input/output error"),
    ],
)
def test_a_disk_that_gets_full_is_told_and_forgotten_when_there_is_room(
    tmp_path: Path, found: Room | OSError, said: str
) -> None:
    async def story() -> None:
        answers: list[Room | OSError] = [found]
        watch, telemetry = watched(tmp_path, answers)
        task = asyncio.create_task(watch.run())
        await until_true(lambda: telemetry.troubles.has("disk"))
        (text,) = telemetry.troubles.texts(details=False, blocking=True)
        assert text == f"the disk of state_dir: {said}"
        assert str(tmp_path) in telemetry.troubles.texts(details=True)[0]
        answers[:] = [Room(101.0, 10)]
        await until_true(lambda: not telemetry.troubles.has("disk"))
        task.cancel()

    asyncio.run(story())


def test_a_disk_that_hangs_holds_nothing_up_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "HUNG_S", 0.05)
    go_on, asked = threading.Event(), []

    def measure(folder: Path) -> Room:
        asked.append(folder)
        go_on.wait(60.0)
        return Room(1e6, None)

    async def story() -> None:
        telemetry = Telemetry()
        settings = LiveSettings(load({"state_dir": tmp_path}, environ={}))
        task = asyncio.create_task(Disk(tmp_path, settings, telemetry, measure).run())
        await until_true(lambda: telemetry.troubles.has("disk"))
        assert "it has not answered for" in telemetry.troubles.texts(details=False)[0]
        assert len(asked) == 1, "one question at a time"
        go_on.set()
        await until_true(lambda: not telemetry.troubles.has("disk"))
        task.cancel()

    asyncio.run(story())


def test_a_real_disk_answers(tmp_path: Path) -> None:
    assert room_of(tmp_path).mb > 0
