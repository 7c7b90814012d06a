"""The processes of this machine, as /proc shows them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.support.waiting import LONG_S, until

DYING_S = 10.0
"""What a process that has been told to end may take."""


def pids() -> list[int]:
    """All processes but this one."""
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal() and int(p.name) != os.getpid()]


def read(pid: int, what: str) -> bytes:
    """A file of /proc/PID; b"" of a process that has ended, or that this user may not read."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def parent(pid: int) -> int | None:
    """The parent of a process; None where there is no such process any more."""
    words = _stat(pid)
    return int(words[1]) if words else None


def children(pid: int) -> list[int]:
    """The children of a process's main thread."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Whether a process is there and has not ended: a zombie has."""
    words = _stat(pid)
    return bool(words) and words[0] != b"Z"


def mentioning(folder: Path) -> list[int]:
    """Processes, zombies aside, that have a folder in their command line or environment."""
    name = str(folder).encode()
    return [pid for pid in pids() if name in read(pid, "cmdline") + read(pid, "environ") and alive(pid)]


def left(folder: Path) -> list[int]:
    """Processes that mention a folder and do not end: those that are about to get a moment for it."""
    deadline = time.monotonic() + DYING_S
    while (found := mentioning(folder)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def until_ended(found: Iterable[int]) -> None:
    """Wait until none of these processes is alive."""
    waited = tuple(found)
    until(lambda: not any(map(alive, waited)), f"processes {waited} have ended", seconds=LONG_S)


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name; none where there is no such process."""
    return read(pid, "stat").rpartition(b")")[2].split()


def daemon_that_ends(state: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """A daemon on a state directory on which it cannot begin, and what it said."""
    words = ("daemon", "--scheduler", "local", "--state-dir", str(state))
    return subprocess.run(
        [sys.executable, "-m", "bftrainer", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
