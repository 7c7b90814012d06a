"""Makes the state directory: on a disk of this machine, the daemon's own, and closed to others."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.running import STATE_DIR
from bftrainer.state_dir.filesystem import NO_STORAGE, Mount, mount_of
from bftrainer.state_dir.path_safety import danger, user_called

OTHERS = 0o077
KEPT = ("bftrainer.db*", "key", "instance", "daemon.lock", "logs", "horovod")
"""Names of the daemon's files in the folder."""
LOCAL = (Path("/var/tmp"), Path("/tmp"))  # noqa: S108  a name in there is made, or must be the daemon's
"""Folders of a machine that are usually on its own disk, for everybody."""


def make_state_dir(
    path: Path, *, private: bool = False, on_network: bool = False, say: Callable[[str], None]
) -> None:
    """Make the state directory where it is missing, and close it and the daemon's files in it to others.

    `say` gets a sentence about each thing that others could read. `private`: the folder must be closed
    already, as other users' secrets are in it. `on_network`: it may be on a file system that other machines
    share.

    Raises:
        BftrainerError: it cannot be made, another user owns it or what the daemon keeps in it, another user
            could put something else in its place, it is open and has other files, or it is on a network file
            system. The message has a remedy.
    """
    try:
        mount = mount_of(path)
        if mount is not None and mount.is_network and not on_network:
            raise BftrainerError(STATE_DIR.ends(_not_here(path, mount, site=private)))
        check_state_dir(path, os.geteuid(), private=private)
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            check_state_dir(path, os.geteuid(), private=private)  # another user may have been faster
        _close(path, say)
    except OSError as error:
        raise BftrainerError(STATE_DIR.ends(f"--state-dir {path}: {error.strerror}; take another")) from error


class StateDirError(BftrainerError):
    """The daemon refuses a state directory: what is wrong with it, and what to do."""

    def __init__(self, said: str, remedy: str) -> None:
        super().__init__(STATE_DIR.ends(f"{said}; {remedy}"))
        self.said, self.remedy = said, remedy


def check_state_dir(path: Path, account: int | None, *, private: bool) -> None:
    """Look whether a daemon that runs as the user `account` (None: not known) takes a state directory, which
    may be missing yet. Changes nothing.

    Raises:
        StateDirError: it does not.
        OSError: it cannot be seen.
    """
    mount = mount_of(path)
    if mount is not None and mount.kind in NO_STORAGE:
        raise StateDirError(f"state_dir {path} is on {mount.kind}, which keeps no files", "take another")
    found = danger(path, account, strict=private, instead="/var/lib/bftrainer")
    if found is not None:
        raise StateDirError(f"state_dir {path}: {found.said}", found.remedy)
    there = nearest(path)
    if not there.is_dir():
        raise StateDirError(f"state_dir {path}: {there} is no folder", "take another --state-dir")
    if there != path:
        return
    owner = path.stat().st_uid
    if account is not None and owner != account:
        raise StateDirError(
            f"state_dir {path} belongs to user {user_called(owner)}, and this is {user_called(account)}",
            "take another --state-dir, or run the daemon as its owner",
        )
    _check_closed(path, private=private)
    _check_own_files(path, owner)


def nearest(path: Path) -> Path:
    """The folder itself, or the one above it that is there while it is missing. A dangling link is there."""
    return next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))


def suggested(user: str) -> Path | None:
    """A folder on a disk of this machine that `user` could take instead; None if there is none."""
    for base in LOCAL:
        mount = mount_of(base)
        if base.is_dir() and os.access(base, os.W_OK) and (mount is None or not mount.is_network):
            return base / f"bftrainer-{user}"
    return None


def user_name() -> str:
    """The name of the user who runs this process, or the number of one without a name."""
    return user_called(os.geteuid())


def _not_here(path: Path, mount: Mount, *, site: bool) -> str:
    local = None if site else suggested(user_name())
    said = (
        f"state_dir {path} is on a network file system ({mount.kind}, mounted at {mount.at}), where the "
        "store's and the daemon's locks do not work. Take a folder on a disk of this machine"
    )
    if local is not None:
        said += (
            f": write these lines to ~/.config/bftrainer/config.yaml, which the daemon and your commands "
            f"read:\n  state_dir: {local}\n  pilot_log_dir: {path / 'logs'}\nCommands find the daemon on "
            "this machine only"
        )
    elif site:
        said += ", such as /var/lib/bftrainer"
    return f"{said}. To use {path} all the same, at the store's risk: state_dir_on_network: true"


def _check_closed(path: Path, *, private: bool) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & OTHERS:
        return
    strange = _has_others_files(path) if private else any(path.iterdir()) and not _kept(path)
    if strange:
        raise StateDirError(
            f"state_dir {path} is open to others (mode {mode:o}) and has files that are not a daemon's",
            f"take a folder of its own as --state-dir, such as {path / 'bftrainer'}",
        )
    if private:
        raise StateDirError(
            f"state_dir {path} is open to others (mode {mode:o}) and has secrets in it",
            f"say: chmod 700 {path}",
        )


def _has_others_files(path: Path) -> bool:
    """True if it has other files than a daemon's: closing the folder may break other programs."""
    names = (*KEPT, "*.sock")
    return any(not any(place.match(name) for name in names) for place in path.iterdir())


def _check_own_files(path: Path, account: int) -> None:
    for place in _kept(path):
        owner = place.lstat().st_uid
        if owner != account:
            raise StateDirError(
                f"{place} belongs to user {user_called(owner)}: another user has put something into "
                f"state_dir {path}",
                "take another --state-dir, or have it removed",
            )


def _close(path: Path, say: Callable[[str], None]) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    told = say if mode & OTHERS else _nothing  # in a closed folder, nothing was open
    for place in _open_ones(path):
        mode = stat.S_IMODE(place.stat().st_mode)
        place.chmod(mode & ~OTHERS)
        told(f"{place} was open to others (mode {mode:o}) and is closed now (mode {mode & ~OTHERS:o})")


def _open_ones(path: Path) -> list[Path]:
    return [place for place in (path, *_kept(path)) if place.stat().st_mode & OTHERS]


def _nothing(sentence: str) -> None:
    """Say nothing."""


def _kept(path: Path) -> list[Path]:
    """The daemon's files in the folder, without sockets."""
    found = sorted(place for name in KEPT for place in path.glob(name))
    within = [place for folder in found if folder.is_dir() for place in sorted(folder.glob("*.log"))]
    return [place for place in (*found, *within) if place.is_file() or place.is_dir()]
