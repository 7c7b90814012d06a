"""The daemon says that its disk gets full before it is, and that it hangs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from bftrainer.daemon.storage import disk
from bftrainer.daemon.storage.disk import Disk
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.sources import load
from bftrainer.state_dir.room import DiskSpace, room_of
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.waiting import until_true


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "CHECK_S", 0.01)


def watched(folder: Path, answers: list[DiskSpace | OSError]) -> tuple[Disk, Telemetry]:
    def measure(asked: Path) -> DiskSpace:
        assert asked == folder
        found = answers[0] if len(answers) == 1 else answers.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    telemetry = Telemetry()
    settings = LiveSettings(load({"state_dir": folder, "min_free_mb": 100}, environ={}))
    return Disk(folder, settings, telemetry, measure), telemetry


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (DiskSpace(99.0, None), "99 MB are free, less than min_free_mb 100"),
        (DiskSpace(5_000.0, 999), "999 more files (inodes) are possible, fewer than 1,000"),
        (OSError(5, "Input/output error"), "it cannot be asked how full it is: Input/output error"),
    ],
)
def test_a_disk_that_gets_full_is_told_and_forgotten_when_there_is_room(
    tmp_path: Path, found: DiskSpace | OSError, said: str
) -> None:
    async def story() -> None:
        answers: list[DiskSpace | OSError] = [found]
        watch, telemetry = watched(tmp_path, answers)
        task = asyncio.create_task(watch.run())
        await until_true(lambda: telemetry.troubles.has("disk"))
        (text,) = telemetry.troubles.texts(details=False, blocking=True)
        assert text == f"the disk of state_dir: {said}"
        assert str(tmp_path) in telemetry.troubles.texts(details=True)[0]
        answers[:] = [DiskSpace(101.0, 1000)]
        await until_true(lambda: not telemetry.troubles.has("disk"))
        task.cancel()

    asyncio.run(story())


def test_a_disk_that_hangs_holds_nothing_up_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "HUNG_S", 0.05)
    go_on, asked = threading.Event(), []

    def measure(folder: Path) -> DiskSpace:
        asked.append(folder)
        go_on.wait(60.0)
        return DiskSpace(1e6, None)

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
