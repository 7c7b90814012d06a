"""Makes Horovod 0.28.1 let go of its peers when it is shut down.

Its global process set keeps its connections open until the next membership has been formed. A worker
that has noticed a loss and stands at the driver's door would leave peers waiting that were not
connected to the lost one at that moment, until their time-out of 30 s.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

worlds = 0
"""How often Horovod has been initialised in this process."""
_FDS = Path("/proc/self/fd")


def mend() -> None:
    """Wrap Horovod's ways in and out in this process; to be called before `hvd.init()`."""
    import horovod.torch as hvd  # noqa: PLC0415  only Horovod's own workers have it

    own: set[tuple[int, str]] = set()

    def init(*args: Any, **options: Any) -> Any:
        global worlds  # noqa: PLW0603  a process has one Horovod
        worlds += 1
        before = _sockets()
        try:
            return start(*args, **options)
        finally:
            own.update(_sockets() - before)

    def shutdown() -> None:
        stop()
        for fd, _ in own & _sockets():
            _hang_up(fd)
        own.clear()

    start: Callable[..., Any] = hvd.init
    stop: Callable[[], None] = hvd.elastic.shutdown
    hvd.init = hvd.elastic.init = init
    hvd.elastic.shutdown = shutdown


def _sockets() -> set[tuple[int, str]]:
    """The open sockets of this process: descriptor and what the kernel calls it."""
    found = set()
    for entry in _FDS.iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            name = str(entry.readlink())
            if name.startswith("socket:"):
                found.add((int(entry.name), name))
    return found


def _hang_up(fd: int) -> None:
    """End a connection whose descriptor belongs to somebody else: that one will close it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
