"""How a command finds the daemon that it talks to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bftrainer.settings.daemon import SOCKET
from bftrainer.settings.sources import load

if TYPE_CHECKING:
    from bftrainer.api.client import Client


def connect(config: Path | None, state_dir: str | None) -> Client:
    """Return a client of the daemon in `state_dir`, or of the one that the settings name.

    Raises:
        BftrainerError: The settings are wrong.
    """
    from bftrainer.api.client import Client
    from bftrainer.api.munge import Munge

    own = load({"state_dir": state_dir}, file=config)
    if state_dir is not None:
        return Client(own.state_dir / SOCKET, most_mb=own.max_received_mb)
    if own.server is not None:
        return Client(own.server, Munge(own.munge_socket), own.max_received_mb)
    return Client(own.socket, most_mb=own.max_received_mb)
