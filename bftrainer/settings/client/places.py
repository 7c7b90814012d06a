"""The places where a daemon is unless the settings say otherwise, and how settings take paths."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET = "daemon.sock"
"""The socket's name where it lies in the state directory."""
MUNGE_SOCKET = Path("/run/munge/munge.socket.2")


def default_state_dir() -> Path:
    """Return the default folder of a daemon's state: in the user's XDG folder for state."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "bftrainer"


def whole_path(value: str | Path) -> Path:
    """A path as the settings take it: ~ is a user's home.

    Raises:
        ValueError: there is no such user.
    """
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"{Path(value).parts[0]}: no home of such a user is known here") from error
