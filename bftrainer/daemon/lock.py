"""One daemon per state directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import IO

from bftrainer.errors import BftrainerError


def make_state_dir(path: Path, *, private: bool) -> None:
    """Make the state directory where it is missing; `private`: it must be closed to others.

    Raises:
        BftrainerError: it cannot be made, or is open.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise BftrainerError(f"--state-dir {path}: {error.strerror}; take another") from error
    if private and mode & 0o077:
        raise BftrainerError(
            f"state_dir {path} is open to others (mode {mode:o}) and has secrets in it; say: chmod 700 {path}"
        )


class exclusively:  # noqa: N801  used like a function
    """Hold the state directory; the lock goes with the process, however it ends."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "daemon.lock"

    def __enter__(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file: IO[str] = self._path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            pid = self._file.read().strip() or "unknown"
            self._file.close()
            raise BftrainerError(
                f"another daemon (pid {pid}) uses {self._path.parent}; stop it, or take another --state-dir"
            ) from None
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
            os.ftruncate(self._file.fileno(), 0)
            os.write(self._file.fileno(), str(os.getpid()).encode())

    def __exit__(self, *args: object) -> None:
        self._file.close()
