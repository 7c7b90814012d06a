"""The files that workers print to, and the folders in which their programs run."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime
from pathlib import Path

from bftrainer.agent.process import Program
from bftrainer.files import held
from bftrainer.messages.ends import NO_FOLDER


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
    try:
        with held(path.parent, own=True, workdir=program.workdir if program is not None else "") as folder:
            if program is not None:
                make_folder(program)
            log = os.open(folder / path.name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise FolderError(NO_FOLDER.say(what="log can be written", path=path, why=error.strerror)) from error
    moment = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
    with contextlib.suppress(OSError):  # on a full disk training goes on
        os.write(log, f"{moment} bftrainer: {what}\n".encode(errors="replace"))
    return log


def make_folder(program: Program) -> None:
    """Make the folder of its own in which a program is to run, if it is to have one. What the script writes
    there under a name that `workdir` does not have is in this folder alone.

    Raises:
        FolderError: it cannot be made, or it or the folder above belongs to another user. Links would be made
            wherever that one's link leads, under names that others choose who can write to `workdir`.
    """
    if not program.folder:
        return
    own, workdir = Path(program.folder), Path(program.workdir).absolute()
    above = own.relative_to(workdir).parts[:1] if own.is_relative_to(workdir) else ()
    try:
        with held(own, own=True, workdir=program.workdir) as folder:
            for entry in os.scandir(workdir):
                if entry.name not in above:
                    with contextlib.suppress(FileExistsError):  # by another node, or of the script's own
                        (folder / entry.name).symlink_to(entry.path)
    except OSError as error:
        raise FolderError(NO_FOLDER.say(what="folder can be made", path=own, why=error.strerror)) from error
