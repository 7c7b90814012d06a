"""The processes of a real job: the session that LSF starts for it, and all that comes from it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

MOST_ROUNDS = 20


def members(leader: int) -> list[int]:
    """The living processes of a session, its leader first."""
    found = [pid for pid, (_, session) in _all().items() if session == leader]
    return sorted(found, key=lambda pid: pid != leader)


def below(leader: int) -> list[int]:
    """The living processes of a session, and all that come from these or from its leader."""
    table = _all()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    todo = [leader, *(pid for pid, (_, session) in table.items() if session == leader)]
    found: set[int] = set()
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return sorted(found & table.keys())


def marked(mark: str) -> list[int]:
    """The living processes that have `mark` (NAME=value) in their environment and that we may see."""
    wanted = mark.encode()
    return [pid for pid in _all() if wanted in _environment(pid).split(b"\0")]


def send(pids: Iterable[int], number: int) -> None:
    """Signal processes; those that are gone are left out."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill(leader: int) -> None:
    """SIGKILL for a session and all that comes from it, until nothing is left."""
    for _ in range(MOST_ROUNDS):
        found = below(leader)
        if not found:
            return
        send(found, signal.SIGKILL)


def _environment(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _all() -> dict[int, tuple[int, int]]:
    """pid -> (parent, session) of every process that is not dead."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  of thousands
        if name.isdecimal():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    found[int(name)] = (int(fields[1]), int(fields[3]))
    return found
