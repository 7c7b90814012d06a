"""Read what a trainer's workers printed: one file per node, in a folder of the trainer's user.

Of several workers on node n1 the first has the file of the node, the others have n1+1, n1+2 and so on.

The trainer's user may put anything into that folder, and whoever can write to the folder above it may put
another in its stead. Only files that belong to the trainer's user are read, and no links: see `owner`.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.files import NotOfUserError, open_regular
from bftrainer.messages.files.places import UNKNOWN_OWNER
from bftrainer.state_dir.folder import user_name

MAX_BYTES = 256 * 1024
"""Bytes of a file that are read at a time, at most."""
TIMED = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
"""The time that a line begins with: bftrainer's own, or as `logging` and most others write it."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """A piece of a node's file, which ends at the offset `end` in bytes."""

    text: str
    end: int


def is_own(user: str) -> bool:
    """Return whether a trainer's user is the one who runs this process."""
    return user == user_name()


def owner(user: str) -> int:
    """Return the number of a trainer's user.

    Raises:
        BftrainerError: This machine does not know the user.
    """
    if is_own(user):
        return os.geteuid()
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        if user.isdecimal():
            return int(user)
    raise BftrainerError(UNKNOWN_OWNER.say(user=user))


def last_lines(folder: Path, lines: int, node: str | None = None, *, of: int) -> dict[str, LogPart]:
    """Return the last lines of every node's file, or of one node's; empty if nothing has been printed. `of`
    is the `owner` whose files they must be.

    Raises:
        BftrainerError: The user may not read the folder or a file in it.
    """
    return {name: _last(path, lines, of) for name, path in _files(folder, node, of).items()}


def by_time(parts: Mapping[str, LogPart]) -> list[tuple[str, str]]:
    """Return the lines of several nodes by time, each with its node.

    A line without a time follows the line before it on its node; lines of one node keep their order.
    """
    timed = [(at, name, line) for name, part in parts.items() for at, line in _times(part.text.splitlines())]
    return [(name, line) for _, name, line in sorted(timed, key=lambda one: one[0])]


def _times(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Each line with its time; those before the first time have that."""
    found = [TIMED.match(line) for line in lines]
    latest = next((_moment(one) for one in found if one), "")
    for one, line in zip(found, lines, strict=True):
        latest = max(latest, _moment(one)) if one else latest
        yield latest, line


def _moment(found: re.Match[str]) -> str:
    """A time as text that sorts."""
    day, clock, part = found.groups()
    return f"{day} {clock}.{part or ''}"


def added(folder: Path, ends: Mapping[str, int], node: str | None = None, *, of: int) -> dict[str, LogPart]:
    """Return the complete lines that each file has gained since its offset in `ends`; `of` as above.

    Raises:
        BftrainerError: The user may not read the folder or a file in it.
    """
    return {name: _added(path, ends.get(name, 0), of) for name, path in _files(folder, node, of).items()}


def _last(path: Path, lines: int, of: int) -> LogPart:
    try:
        start = max(0, path.stat().st_size - MAX_BYTES)
    except OSError:  # told by _read
        start = 0
    data = _read(path, start, of)
    tail = b"".join(data.splitlines(keepends=True)[-lines:])
    return LogPart(tail.decode(errors="replace"), start + len(data))


def _added(path: Path, start: int, of: int) -> LogPart:
    data = _read(path, start, of)
    if b"\n" in data or len(data) < MAX_BYTES:  # else a line that is too long to wait for its end
        data = data[: data.rfind(b"\n") + 1]
    return LogPart(data.decode(errors="replace"), start + len(data))


def _read(path: Path, start: int, of: int) -> bytes:
    try:
        with open_regular(path, of) as file:
            file.seek(start)
            return file.read(MAX_BYTES)
    except (FileNotFoundError, NotOfUserError):  # the trainer's folder has just been removed, or changed
        return b""
    except OSError as error:
        raise BftrainerError(_refused(path, error)) from error


def _files(folder: Path, node: str | None, of: int) -> dict[str, Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".log" and _is_file(path, of))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # ValueError: no name of a folder
        raise BftrainerError(_refused(folder, error)) from error
    return {path.stem: path for path in paths if node in (None, path.stem, path.stem.partition("+")[0])}


def _is_file(path: Path, of: int) -> bool:
    return not path.is_symlink() and path.is_file() and path.lstat().st_uid == of


def _refused(path: Path, error: Exception) -> str:
    if not isinstance(error, PermissionError):
        return f"{path}: {getattr(error, 'strerror', None) or error}"
    return f"{path}: it is not yours to read; logs belong to the user who submitted the trainer"
