"""Finds the daemon that a command talks to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bftrainer.api.client import Client


def connect(config: Path | None, state_dir: str | None, patience_s: float | None = None) -> Client:
    """Return a client as `bftrainer.remote.connect` does; HTTP is imported only when a command needs it."""
    from bftrainer import remote

    return remote.connect(config, state_dir, patience_s)
