"""Files that appear when they are complete: a reader never finds half of one.

Others may write to the folder, too, and have put links there, under any name. So what is written is new, and
lies in a folder of its own until it takes its place.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bftrainer.errors import BftrainerError
from bftrainer.files import held
from bftrainer.messages.files.places import UNWRITABLE

DPI = 120


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The draft to write to. It takes the place of `path` at the end, unless there is an error.

    Raises:
        OSError: what is at `path` is no regular file but, say, a device, which root could replace; or no
            draft can be made there.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file")
    with _private_folder(path) as private:
        draft = private / "draft"
        try:
            yield draft
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, see `whole_file`."""
    with whole_file(path) as draft:
        draft.write_bytes(content if isinstance(content, bytes) else content.encode())


def copy_folder(source: Path, path: Path, *ignored: str) -> None:
    """Copy a folder, without files of the names `ignored`, to a new one that appears when it is complete.

    Raises:
        BftrainerError: something is at `path`, or the copy cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        with _private_folder(path) as private:
            copy = private / path.name
            try:
                shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns(*ignored))
                copy.rename(path)
            finally:
                shutil.rmtree(copy, ignore_errors=True)
    except OSError as error:
        why = error.strerror or "some of its files cannot be copied"
        raise BftrainerError(UNWRITABLE.say(path=f"--keep {path}", why=why)) from error


def save_figure(figure: Any, path: Path, option: str) -> None:
    """Write a figure of Matplotlib to a file, whose suffix says its format (.png, .svg, .pdf). `option`: of
    the command that was given the path.

    Raises:
        BftrainerError: it cannot be written.
    """
    try:
        with whole_file(path) as draft:
            figure.savefig(draft, dpi=DPI, format=path.suffix[1:] or "png")
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BftrainerError(UNWRITABLE.say(path=f"{option} {path}", why=said)) from error


@contextmanager
def _private_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path` into which nobody else can put anything."""
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        with held(folder) as private:
            found = private.stat()
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise PermissionError(errno.EPERM, "another user has exchanged the folder of the draft")
            yield private
    finally:
        with suppress(OSError):
            folder.rmdir()
