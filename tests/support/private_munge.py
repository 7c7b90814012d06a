"""A munged of one's own, with a key of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def running_munge() -> Iterator[Path]:
    """The socket of a munged that runs meanwhile; all users of this machine can reach it."""
    folder = Path(tempfile.mkdtemp(prefix="munge-"))
    folder.chmod(0o711)
    key, socket = folder / "key", folder / "socket"
    key.touch(0o600)
    key.write_bytes(os.urandom(1024))
    munged = subprocess.Popen(
        [
            *("munged", "--foreground", "--num-threads=2", f"--socket={socket}", f"--key-file={key}"),
            *(f"--{name}-file={folder / name}" for name in ("pid", "log", "seed")),
        ],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "errors").open("wb"),
    )
    try:
        deadline = time.monotonic() + 30
        while subprocess.run(
            ["munge", "--no-input", f"--socket={socket}"], check=False, capture_output=True
        ).returncode:
            assert munged.poll() is None and time.monotonic() < deadline, (folder / "errors").read_text()
            time.sleep(0.02)
        yield socket
    finally:
        munged.kill()
        munged.wait()
        shutil.rmtree(folder)
