"""Opens files and folders that others name: nothing waits for a pipe, nothing is read without end, and no
other user says where a folder is. And files that are nobody else's to read."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

MOST_LINKS = 40
"""As many as the kernel follows in one path."""
_WAY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # O_DIRECTORY: automounts are
_LINK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


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
    """Return the text of a regular file of at most `most_kb` kB.

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


@contextlib.contextmanager
def held(folder: Path, *, own: bool = False, workdir: str = "") -> Iterator[Path]:
    """Open a folder, made where it is missing, and yield a path that leads to it until the end, whatever
    others exchange meanwhile on the way to it.

    Others may write to folders on that way. From the first such one on only links of this user and of root
    are followed, as others may have put there what lies there; before it also those of a folder's owner.
    `own`: the folder is to be no link and this user's, made for it alone, in a folder of this user or root.
    `workdir`: others may not be able to exchange any folder on the way, as programs go that way again, later;
    only those that lead to `workdir`, too, are not looked at: who can exchange that has the program already.

    Raises:
        OSError: it cannot be opened or made, or it is not this user's; a `PermissionError` names such a link.
    """
    fd = _own(folder.absolute(), workdir) if own else _opened(folder.absolute())
    try:
        yield Path(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def is_among(folder: str, own: str) -> bool:
    """Return whether a folder is among those that are made for trainers, of which a trainer's `own` is one
    ("": it has none). These are this user's alone."""
    return bool(own) and Path(folder).is_relative_to(Path(own).parent)


def strangers_in(folder: Path) -> str:
    """Return why strangers can put files into a folder; empty if they cannot, or if it is not there. A group
    that its owner lets write there is the owner's choice."""
    try:
        found = folder.stat()
    except OSError:
        return ""
    if found.st_uid not in {os.geteuid(), *_roots()}:
        return "it belongs to another user"
    return "everybody may write there" if found.st_mode & stat.S_IWOTH else ""


def strangers_beside(path: Path) -> str:
    """Return why strangers can put files beside a file, or lead to another one by exchanging a folder on the
    way; empty if they cannot. `path`: without links, as it is opened later. Root trusts no user's folder on
    the way; a user may have folders below that of its group's head."""
    if why := strangers_in(path.parent):
        return why
    for folder in path.parent.parents:
        with contextlib.suppress(OSError):
            found = folder.stat()
            if os.geteuid() == 0 and found.st_uid not in _roots():
                return f"{folder}, on the way there, belongs to another user"
            if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
                return f"everybody may write in {folder}, on the way there"
    return ""


def make_checkpoint_folder(folder: str, own: str) -> None:
    """Make the folder of a trainer's checkpoints, see `is_among`. Raises `OSError` as `held` does."""
    with held(Path(folder), own=is_among(folder, own)):
        pass


def _own(path: Path, workdir: str) -> int:
    above = _opened(path.parent, 0o755, _places_to(workdir) if workdir else None)
    try:
        if os.fstat(above).st_uid not in {0, os.geteuid()}:
            why = f"{path.parent} belongs to another user, who could take trainers' folders away"
            raise PermissionError(errno.EPERM, why)
        fd = _entered(above, path.name, 0o700)
    except NotADirectoryError as error:
        raise NotADirectoryError(error.errno, f"{path} is a link, or no folder; remove it") from error
    finally:
        os.close(above)
    if os.fstat(fd).st_uid != os.geteuid():
        os.close(fd)
        raise PermissionError(errno.EPERM, f"{path} belongs to another user")
    return fd


def _places_to(workdir: str) -> set[tuple[int, int]]:
    """The folders through which a folder is reached, and itself, as the kernel counts them."""
    real = Path(os.path.realpath(workdir))
    found = [place.stat() for place in (real, *real.parents) if place.exists()]
    return {(one.st_dev, one.st_ino) for one in found}


def _check_fixed(here: int, open_to: Collection[tuple[int, int]]) -> None:
    """Raise a `PermissionError` if strangers can exchange what lies in a folder, and it is not in `open_to`.
    A group that its owner lets write there is the owner's choice."""
    found = os.fstat(here)
    if (found.st_dev, found.st_ino) in open_to:
        return
    where = Path(f"/proc/self/fd/{here}").readlink()
    if found.st_uid not in {os.geteuid(), *_roots()}:
        why = f"{where} belongs to another user, who could take trainers' folders away; have root make it"
        raise PermissionError(errno.EPERM, why)
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        why = f"others could take trainers' folders away in {where}; set its sticky bit (chmod +t)"
        raise PermissionError(errno.EPERM, why)


@cache
def _roots() -> frozenset[int]:
    """The numbers under which root's files show. In a container without root's rights they show as those of
    a user that it does not know."""
    if Path("/proc/self/uid_map").read_text(encoding="ascii").split() == ["0", "0", "4294967295"]:
        return frozenset({0})
    return frozenset({0, int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))})


def _opened(path: Path, mode: int = 0o777, open_to: Collection[tuple[int, int]] | None = None) -> int:
    """A descriptor of a folder. `mode`: of those that are made. `open_to`: see `_check_fixed`."""
    names, links, here, shared = list(path.parts), 0, os.open("/", _WAY), False
    try:
        while names:
            name = names.pop(0)
            if open_to is not None:
                _check_fixed(here, open_to)
            shared |= bool(os.fstat(here).st_mode & _OTHERS_WRITE)
            try:
                below = _entered(here, name, mode)
            except NotADirectoryError:
                names = [*Path(_target(here, name, shared=shared)).parts, *names]
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
                continue
            os.close(here)
            here = below
        if open_to is not None:
            _check_fixed(here, open_to)
    except OSError as error:
        os.close(here)
        raise type(error)(error.errno, error.strerror, str(path)) from error
    except ValueError as error:  # a character that no file system takes
        os.close(here)
        raise OSError(errno.EINVAL, str(error)) from error
    return here


def _entered(here: int, name: str, mode: int) -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.open(name, _WAY, dir_fd=here)
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=here)
    return os.open(name, _WAY, dir_fd=here)


def _target(here: int, name: str, *, shared: bool) -> str:
    """Return the target of a link in a folder; `shared`: others may write to it, or to one above."""
    link = os.open(name, _LINK, dir_fd=here)
    try:
        found = os.fstat(link)
        if not stat.S_ISLNK(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        is_its_owners = not shared and found.st_uid == os.fstat(here).st_uid
        if found.st_uid not in {0, os.geteuid()} and not is_its_owners:
            why = f"{name!r} on the way is a link that belongs to another user; name what it leads to"
            raise PermissionError(errno.EPERM, why)
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)
