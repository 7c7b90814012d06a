"""Opens files that others name: nothing waits for a pipe, and nothing is read without end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        OSError: it cannot be opened, or is no regular file, such as a pipe, a device or a folder.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:  # a character that no file system takes
        raise OSError(f"no name of a file: {error}") from error
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
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
