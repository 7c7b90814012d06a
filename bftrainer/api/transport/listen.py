"""Sockets to listen on: Unix sockets for one user or for all, TCP ports of any address or of loopback."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import socket as socket_
import stat
from collections.abc import Iterable
from pathlib import Path

from bftrainer.api.transport.sockets import refuse_descriptors
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.running import LISTENS

LOOPBACK = "127.0.0.1"
TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENING = "0A"
"""The state of a socket that listens, as the kernel's tables have it."""


def bind(address: str, setting: str = "listen") -> socket_.socket:
    """Return a bound socket at host:port, as a setting names it; port 0 takes any that is free.

    Raises:
        BftrainerError: The address is not this machine's, or the port is taken.
    """
    host, _, port = address.rpartition(":")
    try:
        found = socket_.getaddrinfo(host.strip("[]"), int(port), type=socket_.SOCK_STREAM)
        return socket_.create_server(found[0][4][:2], family=found[0][0])
    except (OSError, ValueError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        whose = f" ({holders})" if taken and (holders := held_by(int(port))) else ""
        said = f"{setting} {address}: {error}{whose}; give host:port of this machine"
        raise BftrainerError(LISTENS.ends(said)) from error


def held_by(port: int, tables: Iterable[Path] = TCP_TABLES) -> str:
    """Return which users listen at a port of this machine, in words; "" if the kernel does not say."""
    found = set()
    for table in tables:
        with contextlib.suppress(OSError, ValueError, IndexError):
            rows = [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
            at = f":{port:04X}"
            found |= {int(row[7]) for row in rows if row[1].endswith(at) and row[3] == LISTENING}
    return f"user {' and '.join(map(_user_name, sorted(found)))} listens there" if found else ""


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def bind_loopback(port: int, setting: str = "metrics_port") -> socket_.socket:
    """Return a bound socket on a port of the loopback address, as a setting names it.

    Raises:
        BftrainerError: The port is taken.
    """
    try:
        return socket_.create_server((LOOPBACK, port))
    except OSError as error:
        raise BftrainerError(LISTENS.ends(f"{setting} {port}: {error.strerror}; take another")) from error


def bind_unix(socket: Path, *, for_all: bool) -> socket_.socket:
    """Return a Unix socket bound to a path, for its owner only or for all users; replace a stale socket file.

    Raises:
        BftrainerError: The path allows no socket, or not all users can reach it although `for_all`.
    """
    if len(str(socket).encode()) > 100:
        raise BftrainerError(
            LISTENS.ends(f"{socket}: a socket's path has at most 100 bytes; take a shorter one")
        )
    if for_all:
        _check_way_to(socket.parent)
    bound = socket_.socket(socket_.AF_UNIX, socket_.SOCK_STREAM)
    refuse_descriptors(bound)
    before = os.umask(0o111 if for_all else 0o177)  # no moment without the right permissions
    try:
        with contextlib.suppress(FileNotFoundError):
            socket.unlink()
        bound.bind(str(socket))
    except OSError as error:
        bound.close()
        raise BftrainerError(LISTENS.ends(f"socket {socket}: {error.strerror}; take another path")) from error
    finally:
        os.umask(before)
    return bound


def _check_way_to(folder: Path) -> None:
    """Raise a `BftrainerError` if not every user may enter a folder and those above it."""
    for place in (folder, *folder.parents):
        try:
            open_to_all = place.stat().st_mode & stat.S_IXOTH
        except OSError as error:
            raise BftrainerError(
                LISTENS.ends(f"socket: {place}: {error.strerror}; make the folder first")
            ) from error
        if not open_to_all:
            said = (
                f"socket: users cannot reach it through {place}; allow it with chmod o+x {place}, or take "
                "another path"
            )
            raise BftrainerError(LISTENS.ends(said))
