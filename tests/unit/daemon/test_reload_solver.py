"""SIGHUP cannot make a running daemon depend on a solver that does not work."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.allocate import solvers
from bftrainer.allocate.solvers import SolverAnswer
from bftrainer.daemon.daemon import Daemon
from bftrainer.daemon.process.serve import serve
from bftrainer.daemon.systemd import Systemd
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings
from bftrainer.store.sql import SqlStore
from tests.support.no_nodes import NoNodes
from tests.support.waiting import until_true


def test_settings_that_ask_for_a_solver_that_does_not_work_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def settings(allocator: str) -> Settings:
        return load(
            {"state_dir": tmp_path, "allocator": allocator},
            environ={"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"},
        )

    def expired(model: object, limits: object) -> SolverAnswer:
        raise RuntimeError("no licence")

    broken = {"highs": replace(solvers.SOLVERS["highs"], run=expired)}
    monkeypatch.setattr(solvers, "SOLVERS", broken)
    file = settings("knapsack")
    store = SqlStore(file.database)

    def events() -> list[tuple[str, str]]:
        return [(r.levelname, r.__dict__["event"]) for r in caplog.records if "event" in r.__dict__]

    async def story() -> None:
        nonlocal file
        daemon = Daemon(file, NoNodes(), store)  # type: ignore[arg-type]
        serving = asyncio.create_task(serve(daemon, lambda: file, Systemd("", 0.0)))
        await until_true(lambda: ("INFO", "ready") in events())
        assert events().index(("INFO", "listening")) < events().index(("INFO", "ready"))
        file = settings("milp")
        os.kill(os.getpid(), signal.SIGHUP)
        await until_true(lambda: ("ERROR", "reload_failed") in events())
        assert daemon.settings.current.allocator == "knapsack"
        file = settings("auto")
        os.kill(os.getpid(), signal.SIGHUP)
        await until_true(lambda: ("INFO", "reloaded") in events())
        assert ("WARNING", "solver_failed") in events()
        assert daemon.settings.current.allocator == "auto"
        (problem,) = daemon.telemetry.troubles.texts(details=False)
        assert problem.startswith("auto decides without the MILP: ") and "no licence" in problem
        assert not daemon.telemetry.troubles.texts(details=False, blocking=True)
        file = settings("knapsack")
        os.kill(os.getpid(), signal.SIGHUP)
        await until_true(lambda: not daemon.telemetry.troubles.texts(details=False))
        daemon.stop()
        await serving

    caplog.set_level("INFO")
    try:
        asyncio.run(story())
    finally:
        store.close()
