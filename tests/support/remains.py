"""Finds the processes that a test left behind."""

from __future__ import annotations

import os
from pathlib import Path

from slurm.testbed.processes import started, until

DYING_S = 10.0


def left(directory: Path) -> list[int]:
    """Processes that stay where all should go: the dying get a moment."""
    until(lambda: not mentioned(directory), DYING_S)
    return mentioned(directory)


def mentioned(directory: Path) -> list[int]:
    """Processes that have the directory in their words or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid() and started(int(entry.name)):
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in words:
                found.append(int(entry.name))
    return found
