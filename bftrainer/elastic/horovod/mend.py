"""Makes Horovod 0.28.1 close its connections when it is shut down.

Its global process set keeps them open until the next membership has been formed. A worker that has noticed
a loss and waits for its new place would so keep other peers waiting for it, those that had not noticed, until
their time-out of 30 s.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

worlds = 0
"""Number of Horovod's initialisations in this process."""
_FDS = Path("/proc/self/fd")


def mend() -> None:
    """Wrap Horovod's `init` and `shutdown` in this process. To be called before `hvd.init()`."""
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
    """The open sockets of this process: descriptor and the kernel's name for it."""
    found = set()
    for entry in _FDS.iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            name = str(entry.readlink())
            if name.startswith("socket:"):
                found.add((int(entry.name), name))
    return found


def _hang_up(fd: int) -> None:
    """Shut a connection down. Its descriptor belongs to Horovod, which closes it later."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
