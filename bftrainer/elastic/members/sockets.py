"""Cutting a group's connections. Gloo has no way to abort: an operation under way waits for its peers.

Shutting the sockets down ends it at once on both sides, even where a forked child has a copy of the
descriptor. The addresses at which its members listen tell which sockets are a group's.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TypeVar

Address = tuple[str, int]
T = TypeVar("T")

_creating = threading.Lock()
_NETWORK = (socket.AF_INET, socket.AF_INET6)


def open_sockets() -> frozenset[int]:
    """The descriptors of this process that are sockets."""
    return frozenset(int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.is_socket())


def is_network(fd: int) -> bool:
    """True if a descriptor is a socket that leads, or could lead, to another machine."""
    return any(found.family in _NETWORK for found in _copies([fd]))


def listening(create: Callable[[], T]) -> tuple[T, frozenset[Address]]:
    """Result of `create`, and the addresses at which the process listens since."""
    with _creating:
        before = open_sockets()
        made = create()
        new = open_sockets() - before
    return made, frozenset(_address(s.getsockname()) for s in _copies(new) if _listens(s))


def cut(own: Collection[Address], peers: Collection[Address]) -> None:
    """Shut down all connections that came in at one of `own` addresses, or go to one of `peers`."""
    for found in _copies(open_sockets()):
        try:
            if not _listens(found) and (
                _address(found.getsockname()) in own or _address(found.getpeername()) in peers
            ):
                found.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # not connected any more


def _copies(descriptors: Collection[int]) -> Iterator[socket.socket]:
    """Socket objects for the network sockets among descriptors; closing one leaves the socket open."""
    for fd in descriptors:
        try:
            copy = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue  # closed meanwhile
        with copy:
            if copy.family in _NETWORK:
                yield copy


def _listens(found: socket.socket) -> bool:
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _address(name: tuple[str, int]) -> Address:
    return name[0], name[1]
