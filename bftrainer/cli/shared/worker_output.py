"""Read what a trainer's workers printed: one file per node, in a folder of the trainer's user.

Of several workers on node n1 the first has the file of the node, the others have n1+1, n1+2 and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.files import open_regular

MAX_BYTES = 256 * 1024
"""At most so much of a file is read at a time."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a node's file, which ends at the offset `end` in bytes."""

    text: str
    end: int


def last_lines(folder: Path, lines: int, node: str | None = None) -> dict[str, Part]:
    """Return the last lines of every node's file, or of one node's; empty if nothing has been printed.

    Raises:
        BftrainerError: The user may not read the folder or a file in it.
    """
    return {name: _last(path, lines) for name, path in _files(folder, node).items()}


def added(folder: Path, ends: Mapping[str, int], node: str | None = None) -> dict[str, Part]:
    """Return the complete lines that each file has gained since its offset in `ends`.

    Raises:
        BftrainerError: The user may not read the folder or a file in it.
    """
    return {name: _added(path, ends.get(name, 0)) for name, path in _files(folder, node).items()}


def _last(path: Path, lines: int) -> Part:
    try:
        start = max(0, path.stat().st_size - MAX_BYTES)
    except OSError:  # told by _read
        start = 0
    data = _read(path, start)
    tail = b"".join(data.splitlines(keepends=True)[-lines:])
    return Part(tail.decode(errors="replace"), start + len(data))


def _added(path: Path, start: int) -> Part:
    data = _read(path, start)
    if b"\n" in data or len(data) < MAX_BYTES:  # else a line that is too long to wait for its end
        data = data[: data.rfind(b"\n") + 1]
    return Part(data.decode(errors="replace"), start + len(data))


def _read(path: Path, start: int) -> bytes:
    try:
        with open_regular(path) as file:
            file.seek(start)
            return file.read(MAX_BYTES)
    except FileNotFoundError:  # the trainer's folder has just been removed
        return b""
    except OSError as error:
        raise BftrainerError(_refused(path, error)) from error


def _files(folder: Path, node: str | None) -> dict[str, Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".log" and path.is_file())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # ValueError: no name of a folder
        raise BftrainerError(_refused(folder, error)) from error
    return {path.stem: path for path in paths if node in (None, path.stem, path.stem.partition("+")[0])}


def _refused(path: Path, error: Exception) -> str:
    if not isinstance(error, PermissionError):
        return f"{path}: {getattr(error, 'strerror', None) or error}"
    return f"{path}: it is not yours to read; logs belong to the user who submitted the trainer"
