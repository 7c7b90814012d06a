"""A client that passes what takes long to close: connections with unsent data and a long SO_LINGER."""

from __future__ import annotations

import contextlib
import os
import socket
import struct


def pass_lingering(at: socket.socket, seconds: int, number: int = 4) -> list[socket.socket]:
    """Send one byte with so many connections, and keep no copy: the receiver closes them last.

    Returns:
        Their far ends, to be kept: they read nothing, so each close takes so many seconds.

    Raises:
        OSError: The kernel refuses to pass descriptors here.
    """
    pairs = [_lingering(seconds) for _ in range(number)]
    near = [pair[0].detach() for pair in pairs]
    try:
        socket.send_fds(at, [b"G"], near)
    except OSError:
        for fd in near:  # nobody else has them: they must not take long here either
            with socket.socket(fileno=fd) as own:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise
    for fd in near:
        os.close(fd)
    return [pair[1] for pair in pairs]


def _lingering(seconds: int) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    near.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            near.send(b"x" * 65536)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
    return near, far
