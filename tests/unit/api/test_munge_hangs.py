"""Requests over TCP while munged hangs: what asks it is bounded, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bftrainer.api.munge import AT_ONCE, Munge
from tests.support.processes import mentioning
from tests.support.waiting import until_true


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Munge:
    command = tmp_path / "unmunge"
    command.write_text("#!/bin/sh\ncat > /dev/null\ntouch $0.$$.asked\nexec sleep 60\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return Munge(tmp_path / "socket")


def test_nothing_asks_munge_for_a_client_that_has_gone(hanging: Munge, tmp_path: Path) -> None:
    async def story() -> None:
        asked = [asyncio.create_task(hanging.decode("MUNGE:x:", "")) for _ in range(2 * AT_ONCE)]
        await until_true(lambda: len(list(tmp_path.glob("*.asked"))) == AT_ONCE)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert not mentioning(tmp_path)

    asyncio.run(story())
