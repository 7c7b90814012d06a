"""What users and admins order: it is stored, and the engine hears of it once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.model.machine import Operation
from bftrainer.store.sql import SqlStore
from bftrainer.testing.store import PROGRESS, SPEC
from tests.support.no_nodes import NoNodes
from tests.support.nodes_world import run, settings_in


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    made = SqlStore(settings_in(tmp_path).database)
    yield made
    made.close()


@pytest.fixture
def daemon(tmp_path: Path, store: SqlStore) -> Iterator[Daemon]:
    made = Daemon(settings_in(tmp_path), NoNodes(), store, WallClock())  # type: ignore[arg-type]
    yield made
    made.runner.close()


def heard(daemon: Daemon) -> list[str]:
    """The kinds of the events that the engine is to take."""
    return [type(event).__name__ for event in daemon.mailbox.waiting()]


def test_a_drain_ends_with_the_next_order_and_is_stored(daemon: Daemon, store: SqlStore) -> None:
    async def scenario() -> None:
        for operation, events in (
            (Operation.PAUSED, []),
            (Operation.RUNNING, []),
            (Operation.DRAINING, ["Drain"]),
            (Operation.RUNNING, ["Resume"]),
            (Operation.DRAINING, ["Drain"]),
            (Operation.PAUSED, ["Resume"]),
        ):
            daemon.orders.administer(operation)
            assert (daemon.nodes.state.operation, heard(daemon)) == (operation, events)
        await daemon.journal.close()
        assert store.get("operation") == "paused"

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_an_unfinished_trainer_reports_is_not_late(
    daemon: Daemon, store: SqlStore, restarted: bool
) -> None:
    late = list[object]()
    daemon.journal.late = late.append

    async def scenario() -> None:
        if restarted:
            id_ = store.submit(SPEC, 1.0)
            await daemon.recovery.load()
        else:
            id_ = await daemon.orders.submit(SPEC)
            assert heard(daemon) == ["TrainerSubmitted"]
        report = replace(PROGRESS, trainer=id_)
        daemon.journal.progressed(report)
        await daemon.journal.close()
        daemon.journal.look()
        assert not late and daemon.journal.latest(id_) == report

    run(scenario)
