"""What the local scheduler remembers of the log that an earlier daemon began with."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.daemon.clock import WallClock
from bftrainer.schedulers.local.make import PLAYED, make
from bftrainer.schedulers.shared.context import Context, PlayedLog
from bftrainer.store.sql import SqlStore
from tests.support.nodes_world import settings_in


def made(tmp_path: Path, remembered: str | None) -> tuple[str | None, list[str]]:
    """What is remembered after a start with this, and what the start has told."""
    store, told = SqlStore(tmp_path / "bftrainer.db"), list[str]()
    if remembered is not None:
        store.put(PLAYED, remembered)
    make(
        Context(
            settings=settings_in(tmp_path),
            store=store,
            clock=WallClock(),
            log=PlayedLog(path=None, nodes=2, speed=1.0, seed=0, begin=None),
            agents_at="/nowhere",
            say=told.append,
        )
    )
    found = store.get(PLAYED)
    store.close()
    return found, told


def test_a_log_goes_on_where_it_would_be(tmp_path: Path) -> None:
    first, _ = made(tmp_path, None)
    again, told = made(tmp_path, first)
    assert again == first and told == []


@pytest.mark.parametrize("damaged", ["[" * 100_000, "{", "7", "[]", '["log", "when"]', '["log", null, 3]'])
def test_what_is_damaged_is_as_if_no_daemon_had_begun(tmp_path: Path, damaged: str) -> None:
    found, _ = made(tmp_path, damaged)
    assert found is not None and found.startswith('["')
