"""Scratch copies of a script's folder: each run of a rehearsal writes into its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.places import TOO_LARGE_TO_COPY

MB = 1 << 20
LARGE = 32 * MB
"""Larger files are linked in place of copied, as they are data."""
MOST = 2_000 * MB
MOST_FILES = 20_000
NO_COPY = frozenset({".git", ".hg", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache"})
"""Folders that are linked (environments) or left out: no script writes there."""
OUTPUTS = (".pt", ".pth", ".ckpt", ".safetensors", ".log")
"""Files that a script may overwrite: copied, whatever their size."""
Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ScratchCopy:
    """A scratch copy, and what each file was when it was copied."""

    folder: Path
    stamps: dict[str, Stamp]

    def written(self) -> Iterator[Path]:
        """The files that are new or have changed since, in order, relative to the folder."""
        for path in sorted(_files(self.folder)):
            name = str(path.relative_to(self.folder))
            if not path.is_symlink() and self.stamps.get(name) != _stamp(path):
                yield Path(name)


def copy(source: Path, target: Path) -> ScratchCopy:
    """Copy a folder; large files of data, environments and what this user cannot read are linked.

    Raises:
        BftrainerError: it holds too much.
    """
    total = 0
    for count, path in enumerate(_files(source), 1):
        size = 0 if path.is_symlink() else path.stat().st_size
        total += size if size <= LARGE or path.suffix in OUTPUTS else 0
        if total > MOST or count > MOST_FILES:
            raise BftrainerError(TOO_LARGE_TO_COPY.say(folder=source, mb=MOST // MB, files=MOST_FILES))

    def put(one: str, other: str) -> str:
        path = Path(one)
        if path.stat().st_size > LARGE and path.suffix not in OUTPUTS:
            Path(other).symlink_to(path.resolve())
        else:
            shutil.copy2(one, other)
        return other

    linked = [Path(source, name) for name in (".venv", "venv") if (source / name).is_dir()]

    def left_out(folder: str, names: list[str]) -> set[str]:
        every = [(name, Path(folder, name)) for name in names]
        special = {n for n, p in every if not (p.is_symlink() or p.is_file() or p.is_dir())}  # pipes, sockets
        closed = [p for n, p in every if n not in special and not p.is_symlink() and not _can_be_read(p)]
        linked.extend(closed)  # another user's: the script is refused there as in the folder itself
        return set(names) & NO_COPY | special | {path.name for path in closed}

    shutil.copytree(
        source, target, copy_function=put, ignore=left_out, symlinks=True, ignore_dangling_symlinks=True
    )
    for path in linked:
        (target / path.relative_to(source)).symlink_to(path.resolve())
    return ScratchCopy(target, {str(path.relative_to(target)): _stamp(path) for path in _files(target)})


def _files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - NO_COPY)
        yield from (Path(where, name) for name in sorted(names) if Path(where, name).is_file())


def _can_be_read(path: Path) -> bool:
    return os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK)


def _stamp(path: Path) -> Stamp:
    found = path.lstat()
    return found.st_mtime_ns, found.st_size
