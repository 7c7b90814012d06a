"""Processes that belong to a demonstration, found by the name of its directory."""

from __future__ import annotations

import os
import time
from pathlib import Path


def strays(directory: Path) -> list[int]:
    """Return the ids of the processes whose arguments or environment name the directory, without this one."""
    wanted, found = str(directory).encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue  # it has ended, or it belongs to another user
            if wanted in text:
                found.append(int(entry.name))
    return found


def settled_strays(directory: Path, patience_s: float) -> list[int]:
    """Return the strays that are left once those that are ending have had `patience_s` to end."""
    deadline = time.monotonic() + patience_s
    while (found := strays(directory)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found
