"""Finds the daemon that a command talks to, and follows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bftrainer.api.client import Client
    from bftrainer.api.follow import FeedState

CERTIFICATES = "SSL_CERT_FILE"
"""The variable that names OpenSSL's file of certificates."""


def connect(config: Path | None, state_dir: str | None, patience_s: float | None = None) -> Client:
    """Return a client as `bftrainer.remote.connect` does; HTTP is imported only when a command needs it."""
    from bftrainer import remote

    return remote.connect(config, state_dir, patience_s)


def changes(client: Client, *parts: str, every_s: float) -> Iterator[FeedState]:
    """Yield whenever the daemon tells that these parts of its feed have changed, as `api.follow.followed`."""
    with without_certificates():
        from bftrainer.api.follow import followed

    return followed(client, *parts, every_s=every_s)


@contextmanager
def without_certificates() -> Iterator[None]:
    """While aiohttp is imported it has OpenSSL read all certificates of the machine, which takes longer than
    all else that a command does. Commands talk to a daemon without TLS: no certificate would be needed."""
    before = os.environ.get(CERTIFICATES)
    os.environ[CERTIFICATES] = os.devnull
    try:
        yield
    finally:
        if before is None:
            del os.environ[CERTIFICATES]
        else:
            os.environ[CERTIFICATES] = before
