"""The demonstration on Slurm, interrupted at its worst moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.testbeds.waiting import until
from slurm.testbed import Testbed
from slurm.testbed.processes import kill
from tests.support.processes import left, mentioning, read

ROOT = Path(__file__).parent.parent.parent
LONG_S = 240.0


@pytest.fixture
def demo(place: Path) -> Iterator[subprocess.Popen[str]]:
    """All that it starts has the directory in its environment. Nothing of it outlives a failed test."""
    place.mkdir()
    place.chmod(0o755)
    running = subprocess.Popen(
        [sys.executable, "-m", "slurm.testbed", "demo", "--nodes", "2", str(ROOT / "trainers/digits.yaml")],
        env={**os.environ, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
            running.communicate()
        for directory in place.glob("bftrainer-slurm-*"):
            Testbed.at(directory).down()
        kill(mentioning(place))


def agents(place: Path) -> list[int]:
    """Pilots that are up."""
    return [pid for pid in mentioning(place) if b"bftrainer.agent" in read(pid, "cmdline")]


def test_ctrl_c_leaves_nothing_running(demo: subprocess.Popen[str], place: Path) -> None:
    assert until(lambda: bool(agents(place)) or demo.poll() is not None, LONG_S)  # workers start
    assert agents(place)
    demo.send_signal(signal.SIGINT)
    said, _ = demo.communicate(timeout=LONG_S)
    assert demo.returncode == 1
    assert "submitted" not in said.replace("main jobs: 0 submitted", "")
    assert not left(place)
    assert not list(place.iterdir())
