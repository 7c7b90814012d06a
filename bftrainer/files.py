"""Opens files that others name: nothing waits for a pipe, and nothing is read without end. And files that are
nobody else's to read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotOfUserError(OSError):
    """A file does not belong to the user in whose folder it is."""


def open_regular(path: Path, of: int | None = None) -> BinaryIO:
    """Open a regular file for reading.

    `of`: it must belong to the user of this number, and be no link. Whoever reads files that another user put
    there could otherwise be led to any file of a third one, or of root.

    Raises:
        OSError: it cannot be opened, is no regular file, such as a pipe, a device or a folder, or is not of
            that user.
    """
    no_link = 0 if of is None else os.O_NOFOLLOW
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | no_link)
    except ValueError as error:  # a character that no file system takes
        raise OSError(f"no name of a file: {error}") from error
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and of in (None, found.st_uid):
        return os.fdopen(fd, "rb")
    os.close(fd)
    if stat.S_ISREG(found.st_mode):
        raise NotOfUserError(f"it belongs to user {found.st_uid}, and not to {of}: it is not read")
    raise OSError("not a regular file; write it to one, and name that")


def read_text(path: Path, most_kb: int) -> str:
    """The text of a regular file of at most so many kB.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
        UnicodeDecodeError: it is no text.
    """
    with open_regular(path) as file:
        found = file.read(most_kb * 1000 + 1)
        size = max(len(found), os.fstat(file.fileno()).st_size)
    if len(found) > most_kb * 1000:
        raise OSError(f"{size} bytes; at most {most_kb} kB are read: shorten it")
    return found.decode("utf-8")


def private_file(path: Path, *, append: bool = True) -> int:
    """Open a file for writing that only we can read, whatever the umask is; make it where it is missing.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if append else 0)
    fd = os.open(path, flags, 0o600)
    if stat.S_IMODE(os.fstat(fd).st_mode) & 0o077:
        os.fchmod(fd, 0o600)
    return fd
