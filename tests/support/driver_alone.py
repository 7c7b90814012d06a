"""A Horovod driver without a daemon: the test plays that."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def driver_alone(folder: Path) -> Iterator[Path]:
    """A driver that runs; the path of the socket where it listens for its daemon."""
    path = folder / "driver"
    command = [sys.executable, "-m", "bftrainer.elastic.horovod.driver", "--socket", str(path)]
    driver = subprocess.Popen(command, cwd=folder)
    try:
        deadline = time.monotonic() + 120
        while not path.is_socket():
            assert driver.poll() is None and time.monotonic() < deadline, "there is no driver"
            time.sleep(0.05)
        yield path
    finally:
        driver.kill()
        driver.wait()


def as_daemon(path: Path) -> socket.socket:
    """A daemon's connection to it."""
    daemon = socket.socket(socket.AF_UNIX)
    while True:
        try:
            daemon.connect(str(path))
        except ConnectionRefusedError:  # it has its path, and does not listen yet
            time.sleep(0.01)
        else:
            return daemon
