"""How a program of a user finds the daemon that it talks to."""

from __future__ import annotations

from pathlib import Path

from bftrainer.api.client import Client
from bftrainer.api.munge import Munge
from bftrainer.api.received import Bounds
from bftrainer.settings.daemon import SOCKET
from bftrainer.settings.sources import load


def connect(config: Path | None, state_dir: str | None, patience_s: float | None = None) -> Client:
    """Return a client of the daemon in `state_dir`, or of the one that the settings name.

    It waits `patience_s` for an answer, or as long as a client does.

    Raises:
        BftrainerError: The settings are wrong.
    """
    own = load({"state_dir": state_dir}, file=config)
    bounds = Bounds(most_mb=own.max_received_mb, patience_s=patience_s)
    if state_dir is not None:
        return Client(own.state_dir / SOCKET, bounds=bounds)
    if own.server is not None:
        return Client(own.server, Munge(own.munge_socket), bounds)
    return Client(own.socket, bounds=bounds)
