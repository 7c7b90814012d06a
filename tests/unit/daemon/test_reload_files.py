"""SIGHUP while the file with the settings cannot be read: the event loop goes on, and so do the settings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bftrainer.daemon.daemon import Daemon
from bftrainer.daemon.process.reloading import Reloading
from bftrainer.errors import BftrainerError
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings
from bftrainer.store.sql import SqlStore
from tests.support.no_nodes import NoNodes
from tests.support.waiting import until_true


def settings(folder: Path, **given: Any) -> Settings:
    nowhere = {"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"}
    return load({"state_dir": folder, **given}, environ=nowhere)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = SqlStore(tmp_path / "bftrainer.db")
    yield store
    store.close()


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    records = [r.__dict__ for r in caplog.records]
    return [str(r["fields"].get("reason")) for r in records if r.get("event") == event]


def story(
    store: SqlStore,
    folder: Path,
    read: Callable[[], Settings],
    scenario: Callable[[Daemon, Reloading, list[int]], Any],
    patience_s: float = 60.0,
) -> None:
    async def run() -> None:
        daemon = Daemon(settings(folder), NoNodes(), store)  # type: ignore[arg-type]
        ends: list[int] = []
        reloading = Reloading(daemon, read, lambda: ends.append(1), patience_s=patience_s)
        running = asyncio.create_task(reloading.run())
        await scenario(daemon, reloading, ends)
        running.cancel()

    asyncio.run(run())


def test_a_file_that_does_not_answer_keeps_the_loop_and_later_reloads_from_nothing(
    tmp_path: Path, store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    answers = threading.Event()
    reads: list[threading.Thread] = []

    def read() -> Settings:
        reads.append(threading.current_thread())
        assert answers.wait(60)
        return settings(tmp_path, user_max_nodes=len(reads))

    async def scenario(daemon: Daemon, reloading: Reloading, ends: list[int]) -> None:
        reloading.ask()
        await until_true(lambda: len(ends) == 1)
        reloading.ask()
        await until_true(lambda: len(ends) == 2)
        assert len(reads) == 1 and reads[0] is not threading.main_thread(), "one at a time, off the loop"
        first, second = told(caplog, "reload_failed")
        assert "within 0.05 s" in first and "still reads" in second
        answers.set()
        reads[0].join()
        reloading.ask()
        await until_true(lambda: len(ends) == 3)
        assert daemon.settings.current.user_max_nodes == 2, "what came too late was dropped"

    story(store, tmp_path, read, scenario, patience_s=0.05)


def test_asked_while_it_reads_it_reads_once_more(tmp_path: Path, store: SqlStore) -> None:
    answers = threading.Event()
    reads: list[int] = []

    def read() -> Settings:
        reads.append(1)
        assert answers.wait(60)
        return settings(tmp_path, user_max_nodes=len(reads))

    async def scenario(daemon: Daemon, reloading: Reloading, ends: list[int]) -> None:
        reloading.ask()
        await until_true(lambda: reads)
        for _ in range(5):
            reloading.ask()
        answers.set()
        await until_true(lambda: len(ends) == 2)
        assert daemon.settings.current.user_max_nodes == len(reads) == 2

    story(store, tmp_path, read, scenario)


def test_an_error_keeps_the_old_settings(
    tmp_path: Path, store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    def read() -> Settings:
        raise BftrainerError("not so")

    async def scenario(daemon: Daemon, reloading: Reloading, ends: list[int]) -> None:
        before = daemon.settings.current
        reloading.ask()
        await until_true(lambda: ends)
        assert daemon.settings.current is before and told(caplog, "reload_failed") == ["not so"]

    story(store, tmp_path, read, scenario)
