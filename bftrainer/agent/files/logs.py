"""The files that workers print to, and the folders in which their programs run."""

from __future__ import annotations

import contextlib
import errno
import os
from datetime import datetime
from pathlib import Path

from bftrainer.agent.process import Program


class FolderError(Exception):
    """A trainer's folder cannot be made, or it is not its user's. The spec names the workdir, so its program
    is to blame: no node and no pilot has failed, and the trainer fails after `max_failures`."""


def log_of(path: Path, local_rank: int) -> Path:
    """The file for what a worker prints: each of a node has its own, the first has the node's."""
    return path.with_name(f"{path.stem}+{local_rank}{path.suffix}") if local_rank else path


def open_log(path: Path, what: str, program: Program | None = None) -> int:
    """A descriptor to write to a worker's log, in a folder of its user. It begins with a line that says what
    starts: the `program`, whose own folder is made, too.

    Raises:
        FolderError: it cannot be written.
    """
    if program is not None:
        make_folder(program)
    try:
        own_folder(path.parent)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        where = error.filename or path
        raise FolderError(f"no log can be written at {where}: {error.strerror}; check workdir") from error
    moment = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
    with contextlib.suppress(OSError):  # on a full disk it trains all the same
        os.write(log, f"{moment} bftrainer: {what}\n".encode(errors="replace"))
    return log


def make_folder(program: Program) -> None:
    """Make the folder in which a program is to run, if that is its own.

    Raises:
        FolderError: it cannot be made.
    """
    try:
        program.make_folder()
    except OSError as error:
        raise FolderError(f"no folder can be made at {error.filename}: {error.strerror}") from error


def own_folder(folder: Path) -> None:
    """Make a folder that only this user can read, in one that no other user can take away.

    Raises:
        OSError: it cannot be made, or it or the folder above belongs to another user.
    """
    above = folder.parent
    above.mkdir(parents=True, exist_ok=True)
    if not {above.lstat().st_uid, above.stat().st_uid} <= {0, os.geteuid()}:
        why = "belongs to another user, who could take trainers' folders away; take another workdir"
        raise PermissionError(errno.EPERM, why, str(above))
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(folder))
