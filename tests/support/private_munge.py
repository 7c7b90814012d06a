"""A munged of one's own, with a key of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import until


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

        def serves() -> bool:
            assert munged.poll() is None, (folder / "errors").read_text()
            command = ["munge", "--no-input", f"--socket={socket}"]
            return subprocess.run(command, check=False, capture_output=True).returncode == 0

        until(serves, "munged answers", seconds=30, every_s=0.02, story=(folder / "errors").read_text)
        yield socket
    finally:
        munged.kill()
        munged.wait()
        shutil.rmtree(folder)
