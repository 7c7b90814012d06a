"""Finds the daemon that a user's program talks to."""

from __future__ import annotations

from pathlib import Path

from bftrainer.api.client import Client
from bftrainer.api.munge import Munge
from bftrainer.api.received import ResponseLimits
from bftrainer.settings.client.places import SOCKET
from bftrainer.settings.client.whereabouts import found


def connect(config: Path | None, state_dir: str | None, patience_s: float | None = None) -> Client:
    """Return a client of the daemon in `state_dir`, or of the one that the settings name.

    It waits `patience_s` for an answer, or as long as a client does.

    Raises:
        BftrainerError: The settings are wrong.
    """
    settings = found(state_dir, config)
    bounds = ResponseLimits(patience_s=patience_s)
    if state_dir is not None:
        return Client(settings.state_dir / SOCKET, bounds=bounds)
    if settings.server is not None:
        return Client(settings.server, Munge(settings.munge_socket), bounds)
    return Client(settings.socket, bounds=bounds)
