"""The files of a series: lines are appended, whole or not at all; full files are packed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.files import open_regular
from bftrainer.messages.files.places import OTHER_RECORDER, UNWRITABLE
from bftrainer.traces import recorded
from bftrainer.traces.whole_file import whole_file

DAY_S = 86_400.0
MB = 1_000_000


class Series:
    """Writes lines to files in a folder, which it makes. A file has a day or `rotate_mb` MB at most, and is
    packed then; all files have `most_mb` MB at most. What an earlier recorder left is packed first.

    Raises:
        BftrainerError: the folder cannot be made, or another recorder writes there.
    """

    def __init__(self, folder: Path, *, rotate_mb: float, most_mb: float) -> None:
        self.folder, self._rotate, self._most = folder, rotate_mb * MB, most_mb * MB
        self._file: int | None = None
        self._path = folder
        self._began = 0.0
        self._size = 0
        self._packed = 0  # bytes of all files but the one that grows
        self._lock = _locked(folder)
        self.pack()

    @property
    def full(self) -> bool:
        """True if the files have reached their bound in bytes."""
        return self._packed + self._size >= self._most

    def due(self, time: float) -> bool:
        """True if the next line should begin a new file."""
        return self._file is None or self._size >= self._rotate or abs(time - self._began) >= DAY_S

    def begin(self, time: float, header: str) -> None:
        """Begin a file with its header. Raises `OSError` if that cannot be written."""
        self.end()
        self.pack()
        name = datetime.fromtimestamp(time, UTC).strftime("record-%Y%m%dT%H%M%S.%fZ.jsonl")
        self._path, self._began, self._size = self.folder / name, time, 0
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            self.append(header)
        except OSError:
            self.end()
            raise

    def append(self, line: str) -> None:
        """Append a line, whole or not at all. Raises `OSError` if it cannot be written."""
        if self._file is None:
            raise OSError(errno.EBADF, "no file has begun")
        data = line.encode()
        try:
            written = os.write(self._file, data)
            if written < len(data):  # what is left of the disk holds a part of it
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
                os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        self._size += len(data)

    def end(self) -> None:
        """End the file that grows; one without a line is removed."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            os.close(self._file)
        self._file = None
        if not self._size:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._size = 0

    def pack(self) -> None:
        """Pack every file that does not grow; one that cannot be packed, as on a full disk, stays as it
        is."""
        self._packed = 0
        for path in recorded.paths(self.folder):
            packed = path if path.suffix == ".gz" else path.with_name(f"{path.name}.gz")
            with contextlib.suppress(OSError):
                if packed != path:
                    _pack(path, packed)
            with contextlib.suppress(OSError):
                self._packed += (packed if packed.exists() else path).lstat().st_size

    def close(self) -> None:
        """End the series: its last file is packed, and another recorder may write to the folder."""
        self.end()
        self.pack()
        os.close(self._lock)


def _pack(path: Path, packed: Path) -> None:
    """Pack the daemon's own file: where others may write, too, a link could have any file of its user, or of
    root, be copied to where they can read it."""
    if not packed.exists():  # else it was packed when a recorder was killed
        with (
            open_regular(path, os.geteuid()) as plain,
            whole_file(packed) as draft,
            gzip.open(draft, "wb", 6) as file,
        ):
            shutil.copyfileobj(plain, file, MB)
    path.unlink()


def _locked(folder: Path) -> int:
    """Lock a folder, which is made where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BftrainerError(UNWRITABLE.say(path=folder, why=error.strerror)) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            os.close(lock)
            raise BftrainerError(OTHER_RECORDER.say(folder=folder)) from None
    return lock
