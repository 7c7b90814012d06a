"""A whole daemon and its watchdog, over a scheduler that has nothing to tell."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bftrainer.daemon.daemon import Daemon
from bftrainer.daemon.process.serve import serve
from bftrainer.daemon.systemd import Systemd
from bftrainer.engine.state import Step
from bftrainer.engine.step import step
from bftrainer.model.events import PolicyChanged
from bftrainer.settings.sources import load
from bftrainer.store.sql import SqlStore
from tests.support.no_nodes import NoNodes
from tests.support.waiting import until_true


class Inbox(Systemd):
    """Remembers what systemd would be told."""

    def __init__(self, watchdog_s: float) -> None:
        super().__init__("nowhere", watchdog_s)
        self.said: list[str] = []

    def _send(self, message: str) -> None:
        self.said.append(message)

    @property
    def pings(self) -> int:
        return self.said.count("WATCHDOG=1")


def test_a_daemon_that_hangs_in_an_event_misses_its_watchdog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = load(
        {"state_dir": tmp_path}, environ={"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"}
    )
    store = SqlStore(own.database)
    hangs, goes_on, right = threading.Event(), threading.Event(), step

    def hang(*given: Any) -> Step:
        if isinstance(given[1], PolicyChanged):
            hangs.set()
            goes_on.wait(60)
        return right(*given)

    monkeypatch.setattr("bftrainer.engine.contain.step", hang)

    async def story() -> None:
        daemon, inbox = Daemon(own, NoNodes(), store), Inbox(watchdog_s=0.04)  # type: ignore[arg-type]

        def says(word: str) -> bool:
            daemon.telemetry.condition("store", word)
            return word in inbox.said[-1]

        serving = asyncio.create_task(serve(daemon, lambda: own, inbox))
        await until_true(lambda: "READY=1" in inbox.said and inbox.pings > 2)
        daemon.reload(own)
        await until_true(lambda: hangs.is_set() and daemon.runner.pulse.stuck_s >= 0.04)
        pings = inbox.pings
        for word in ("once", "twice", "thrice"):  # the loop turns, and looks at the watchdog each time
            await until_true(partial(says, word))
        assert inbox.pings == pings
        goes_on.set()
        await until_true(lambda: inbox.pings > pings)
        daemon.stop()
        await serving

    try:
        asyncio.run(story())
    finally:
        goes_on.set()
        store.close()
