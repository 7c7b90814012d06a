"""Processes in the table that pass for pilots of the local scheduler, of our user and of others."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bftrainer.model.machine import Pilot
from bftrainer.schedulers.local.scheduler import AGENT, MAX_READ, LocalScheduler, Playback, _read

NOBODY = 65534
SLEEPS = "import os, time; {become} os.write(1, b'.'); time.sleep(600)"
AS_ONE = ("--tag", "t1", "--node", "n1")


class Clock:
    def now(self) -> float:
        return time.time()

    def behind_s(self) -> float:
        return 0.0


def scheduler(folder: Path) -> LocalScheduler:
    return LocalScheduler(
        nodes=frozenset({"n1"}),
        changes=[],
        playback=Playback(begin=0.0, origin=time.time(), speed=1.0),
        agents_at=str(folder / "agents.sock"),
        log_dir=folder,
        orphan_s=60.0,
        clock=Clock(),
    )


@contextmanager
def process(folder: Path, *words: str, user: int | None = None) -> Iterator[int]:
    """A process with the words of an agent of the daemon whose state is in a folder."""
    become = "" if user is None else f"os.setuid({user});"
    command = [
        sys.executable,
        "-c",
        SLEEPS.format(become=become),
        AGENT,
        "--daemon",
        str(folder / "agents.sock"),
        *words,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/") as running:
        assert running.stdout is not None
        assert running.stdout.read(1) == b"."
        yield running.pid
        running.kill()


def found(folder: Path) -> tuple[Pilot, ...]:
    return asyncio.run(scheduler(folder).pilots())


@pytest.mark.parametrize(
    ("words", "pilots"),
    [
        (AS_ONE, (Pilot(tag="t1", node="n1"),)),
        ((), ()),
        (("--tag", "t1"), ()),
        (("--tag", "", "--node", "n1"), ()),
        (("--tag", "t1", "--node", ""), ()),
        (("--tag", "t1", "--node", "elsewhere"), ()),
    ],
)
def test_words_that_name_no_pilot_are_none(
    tmp_path: Path, words: tuple[str, ...], pilots: tuple[Pilot, ...]
) -> None:
    with process(tmp_path, *words):
        assert found(tmp_path) == pilots


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
def test_a_process_of_another_user_is_no_pilot(tmp_path: Path) -> None:
    with process(tmp_path, *AS_ONE, user=NOBODY):
        assert found(tmp_path) == ()


def test_of_a_command_line_no_more_is_read_than_a_pilot_has(tmp_path: Path) -> None:
    with process(tmp_path, *AS_ONE, *["x" * 100_000] * 5) as pid:
        assert len(_read(pid, "cmdline") or "") == MAX_READ
        assert found(tmp_path) == (Pilot(tag="t1", node="n1"),)
