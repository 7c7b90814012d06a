"""Starts a pilot as a process of this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def start(
    words: Sequence[str], log: Path, secret: str, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start an agent that prints to `log`, whose folder is made, and tell it its secret. Waits for the disk.
    `environ` is added to its environment.

    Raises:
        OSError: it cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **environ},
        )
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError), child.stdin as told:  # it may have been killed
            told.write(f"{secret}\n".encode())
    return child
