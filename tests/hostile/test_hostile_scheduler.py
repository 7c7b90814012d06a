"""Commands of the scheduler that go mad: what users of a machine write into Slurm reaches us through them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from tests.support.hostile.world import MEMORY_MB, SOON_S, World
from tests.support.slurm_commands import Commands

COMMAND_S = 1
MAD = {
    "nothing": "exit 0",
    "an error": "echo 'slurm_load_jobs error: \\033[2J\\000' >&2; exit 1",
    "no text": "head -c 3000000 /dev/urandom",
    "zeros": "head -c 3000000 /dev/zero",
    "without end": "yes",
    "a line without end": "yes | tr -d '\\n'",
    "errors without end": "yes >&2",
    "brackets": "yes '[' | head -c 3000000 | tr -d '\\n'",
    "numbers": "yes 999999999 | head -c 3000000 | tr '\\n' ,",
    "no answer": "sleep 1000",
    "no end": "trap '' TERM INT HUP; while true; do sleep 1000; done",
    "children": "(setsid sleep 1000 &) ; (sleep 1000 &) ; echo x",
}


class MadSlurm(World):
    """A daemon whose Slurm is a folder of stand-ins."""

    def __init__(self) -> None:
        bounds = {"command_timeout_s": COMMAND_S, "max_squeue_mb": 16}
        super().__init__(("n1",), poll_s=0.2, slurm_mode="window", **bounds)  # nothing preempts jobs there
        folder = self.root / "slurm"
        folder.mkdir()
        self.slurm = Commands(folder)
        self.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        self.command = [sys.executable, "-m", "bftrainer", "daemon", "--scheduler", "slurm"]
        self.command += ["--state-dir", str(self.state)]

    def calls(self) -> int:
        """How often a command has been called."""
        return len(self.slurm.calls())


@pytest.fixture(scope="module")
def site() -> Iterator[MadSlurm]:
    found = MadSlurm()
    try:
        found.start()
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("command", ["squeue", pytest.param("scontrol", marks=pytest.mark.nightly)])
def test_no_output_of_the_scheduler_harms_the_daemon(site: MadSlurm, command: str) -> None:
    path = site.slurm.folder / command
    before = path.read_text()
    for kind, body in MAD.items():
        site.slurm.set(command, body)
        calls = site.calls()
        site.until(lambda calls=calls: site.calls() > calls, SOON_S, f"{command} is called: {kind}")
        assert site.get("status")["pid"] == site.pid(), kind
        path.write_text(before)
        site.until(lambda: site.ready() == [], SOON_S, f"the daemon is well again after {kind}")
    assert site.memory_mb() < MEMORY_MB
