"""Finds the daemon that a command talks to, and follows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bftrainer.api.client import Client
    from bftrainer.api.follow import FeedState


def connect(config: Path | None, state_dir: str | None, patience_s: float | None = None) -> Client:
    """Return a client as `bftrainer.remote.connect` does; HTTP is imported only when a command needs it."""
    from bftrainer import remote

    return remote.connect(config, state_dir, patience_s)


def changes(client: Client, *parts: str, every_s: float) -> Iterator[FeedState]:
    """Yield whenever the daemon tells that these parts of its feed have changed, as `api.follow.followed`."""
    from bftrainer.api.follow import followed

    return followed(client, *parts, every_s=every_s)
