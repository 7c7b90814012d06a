"""One daemon per state directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.files import private_file
from bftrainer.messages.commands.running import OTHER_DAEMON, STATE_DIR
from bftrainer.state_dir.folder import StateDirError

NAME = "daemon.lock"
LOCKLESS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Errors of a file system without locks."""


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The daemon that has a state directory, or had it last: its machine, process and start in UTC."""

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}, since {self.since}"


def holder_of(state_dir: Path) -> LockHolder | None:
    """The daemon that took the lock last; None if unknown, or if one stopped in order since."""
    try:
        known = json.loads((state_dir / NAME).read_bytes()[:1000])
        return LockHolder(str(known["host"]), int(known["pid"]), str(known["since"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def check_locks(folder: Path) -> None:
    """Look whether the file system of a folder has locks. A daemon that has the folder does not mind.

    Raises:
        StateDirError: it has none.
        OSError: the folder cannot be opened.
    """
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in LOCKLESS:
            raise StateDirError(*_lockless(error, folder)) from None
    finally:
        os.close(file)


class exclusively:  # noqa: N801  used like a function
    """Hold the state directory; the lock goes with the process, however it ends.

    `on_network`: machines that share it may have locks of their own, so a lock file that another machine left
    behind counts as held.
    """

    def __init__(self, state_dir: Path, *, on_network: bool = False) -> None:
        self._folder, self._on_network = state_dir, on_network
        self._files: list[int] = []

    def __enter__(self) -> None:
        before = holder_of(self._folder)
        try:
            file = private_file(self._folder / NAME, append=False)
            self._files.append(file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._close()
            raise BftrainerError(_refused(error, self._folder, before)) from None
        here = LockHolder(
            socket.gethostname(), os.getpid(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        )
        if self._on_network and before is not None and before.host != here.host:
            self._close()
            said = (
                f"a daemon on another machine ({before}) did not stop in order, or still uses "
                f"{self._folder}; stop it there, or remove {self._folder / NAME} if it has ended"
            )
            raise BftrainerError(OTHER_DAEMON.ends(said))
        self._keep_from_clean_up()
        with contextlib.suppress(OSError):  # a full disk: the lock still holds
            os.ftruncate(file, 0)
            os.write(file, json.dumps(asdict(here)).encode())

    def __exit__(self, *args: object) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._files[0], 0)  # it stopped in order
        self._close()

    def _keep_from_clean_up(self) -> None:
        """systemd-tmpfiles, which removes old files from /var/tmp, leaves a folder alone that is locked."""
        with contextlib.suppress(OSError):
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            self._files.append(folder)
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _close(self) -> None:
        while self._files:
            os.close(self._files.pop())


def _refused(error: OSError, folder: Path, holder: LockHolder | None) -> str:
    if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
        said = f"another daemon ({holder or 'unknown'}) uses {folder}; stop it, or take another --state-dir"
        return OTHER_DAEMON.ends(said)
    if error.errno in LOCKLESS:
        return STATE_DIR.ends("; ".join(_lockless(error, folder)))
    return STATE_DIR.ends(f"{folder / NAME}: {error.strerror}; take another --state-dir")


def _lockless(error: OSError, folder: Path) -> tuple[str, str]:
    said = (
        f"the file system of {folder} has no locks (flock: {error.strerror}), so that two daemons could use "
        "it at once"
    )
    return said, "take a --state-dir on a disk of this machine"
