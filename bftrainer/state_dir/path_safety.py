"""Finds out whether another user could put something else in the place of a file or folder."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

MOST_LINKS = 40
"""Links in one path, at most: the kernel's own bound."""
ROOT_UID = 0


@dataclass(frozen=True, slots=True)
class Danger:
    """Something that another user could do, and the remedy."""

    said: str
    remedy: str


def danger(path: Path, account: int | None, *, strict: bool, instead: str) -> Danger | None:
    """The first folder or link on the way to `path` through which others could put something else there.

    Folders where everybody may write count, unless they are sticky. `strict`: also folders where a group may
    write, and folders and links that belong neither to root nor to `account` (None: any owner will do).
    Folders that are not there yet do not count. `instead` is a better path, for the remedy. Changes nothing.

    Raises:
        OSError: the way cannot be followed.
    """
    for place in way_to(path):
        try:
            found = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        mode, trusted = stat.S_IMODE(found.st_mode), {ROOT_UID, found.st_uid if account is None else account}
        can = "may put something else in its place, as"
        if strict and found.st_uid not in trusted:
            said = f"user {user_called(found.st_uid)} {can} {place} is of that user"
            return Danger(said, f"take one below folders of root, such as {instead}")
        if stat.S_ISLNK(found.st_mode) or mode & stat.S_ISVTX:
            continue
        if mode & stat.S_IWOTH:
            said = f"everybody {can} {place} has mode {mode:o}"
            return Danger(said, f"say chmod o-w {place} or chmod +t {place}, or take another")
        if strict and mode & stat.S_IWGRP:  # where a folder has an ACL, these bits are all that it allows
            said = f"group {_group(found.st_gid)} {can} {place} has mode {mode:o}"
            return Danger(said, f"take one below folders that only root can change, such as {instead}")
    return None


def socket_danger(socket: Path, account: int | None) -> Danger | None:
    """The way in which another user could replace the daemon's socket, which all users must reach.

    Raises:
        OSError: the way cannot be followed.
    """
    instead = "/run/bftrainer/daemon.sock"
    found = danger(socket, account, strict=True, instead=instead)
    if found is None and socket.parent.is_dir() and socket.parent.stat().st_mode & stat.S_IWOTH:
        said = f"any user may put a socket of its own into {socket.parent}"
        return Danger(said, f"take a folder of the daemon's own, such as {instead}")
    return found


def way_to(path: Path) -> list[Path]:
    """Each folder in which a name of the path is looked up, and each link, as the kernel follows the path.

    Raises:
        OSError: there are too many links.
    """
    found: list[Path] = []
    here, names, links = Path("/"), list(Path(os.path.abspath(path)).parts[1:]), 0  # noqa: PTH100  not its links
    while names:
        name = names.pop(0)
        if name in {"/", ".."}:
            here = Path("/") if name == "/" else here.parent
            continue
        found.append(here)
        try:
            target = os.readlink(here / name)  # noqa: PTH115  we need its parts only
        except OSError:  # no link, or not there
            here = here / name
            continue
        found.append(here / name)
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        names = [*Path(target).parts, *names]
    return list(dict.fromkeys(found))


def user_called(uid: int) -> str:
    """The name of a user, or the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
