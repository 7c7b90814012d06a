"""A Horovod driver without a daemon: the test plays that."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import LONG_S, until


@contextlib.contextmanager
def driver_alone(folder: Path, *options: str) -> Iterator[Path]:
    """A driver that runs with these options; the path of the socket where it listens for its daemon."""
    path = folder / "driver"
    command = [sys.executable, "-m", "bftrainer.elastic.horovod.driver", "--socket", str(path), *options]
    driver = subprocess.Popen(command, cwd=folder)
    try:
        until(lambda: path.is_socket() or driver.poll() is not None, "the driver listens")
        assert driver.poll() is None, "the driver has ended"
        yield path
    finally:
        driver.kill()
        driver.wait()


def as_daemon(path: Path) -> socket.socket:
    """A daemon's connection to it."""
    daemon = socket.socket(socket.AF_UNIX)
    daemon.settimeout(LONG_S)

    def listens() -> bool:
        with contextlib.suppress(ConnectionRefusedError):  # it has its path, and does not listen yet
            daemon.connect(str(path))
            return True
        return False

    until(listens, "the driver accepts a connection", every_s=0.01)
    return daemon
