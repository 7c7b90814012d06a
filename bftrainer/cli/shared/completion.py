"""Tab completion of names that only the daemon knows; it offers nothing if no daemon answers at once.

What is offered becomes a part of a command line: only words that a shell takes as they are, whatever answers.
"""

from __future__ import annotations

import json
import shlex
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.terminal import printable
from bftrainer.errors import BftrainerError
from bftrainer.settings.client.places import SOCKET
from bftrainer.settings.client.whereabouts import found

PATIENCE_S = 2.0
"""Seconds that completion waits for the daemon: the user cannot type meanwhile."""
MOST_OFFERED = 1000
MOST_BYTES = 10_000_000
"""A longer answer is none that completes anything."""


def complete_trainer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of trainers, each with its status."""
    return _offer(ctx, "trainers", incomplete, lambda found: ((t["name"], t["status"]) for t in found))


def complete_study(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of studies, each with its status."""
    return _offer(ctx, "studies", incomplete, lambda found: ((s["name"], s["status"]) for s in found))


def complete_node(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of nodes, each with its state."""
    return _offer(
        ctx, "pool", incomplete, lambda found: ((n["node"], n["why"] or n["state"]) for n in found["nodes"])
    )


def _offer(
    ctx: click.Context, path: str, incomplete: str, named: Callable[[Any], Iterable[tuple[str, object]]]
) -> list[CompletionItem]:
    """Ask the daemon while a command is being typed; nothing is told if it does not answer, or not as one."""
    try:
        answer = _ask(ctx.params.get("config"), ctx.params.get("state_dir"), path)
        offered = [
            CompletionItem(name, help=printable(about)[:80])
            for name, about in dict(named(answer)).items()
            if name.startswith(incomplete) and shlex.quote(name) == name and not name.startswith("-")
        ]
    except (BftrainerError, OSError, TypeError, KeyError, AttributeError, ValueError, RecursionError):
        return []
    return offered[:MOST_OFFERED]


def _ask(config: Path | None, state_dir: str | None, path: str) -> Any:
    """The daemon's answer. Over a Unix socket it comes by the standard library, which is there at once."""
    where = found(state_dir, config)
    if where.server is not None and state_dir is None:
        return connect(config, state_dir, PATIENCE_S).call("GET", path)
    socket_ = where.socket if state_dir is None else where.state_dir / SOCKET
    got: list[bytes] = []
    asking = threading.Thread(target=lambda: got.append(_got(socket_, path)), daemon=True)
    asking.start()
    asking.join(PATIENCE_S)  # however slowly it answers
    return json.loads(got[0] if got else b"")


def _got(path: Path, route: str) -> bytes:
    """The body of an answer to GET; empty if there is none."""
    with suppress(OSError, HTTPException):
        connection = _UnixConnection(path)
        connection.request("GET", f"/v1/{route}")
        answer = connection.getresponse()
        return answer.read(MOST_BYTES) if answer.status == 200 else b""
    return b""


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("bftrainer", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(str(self._path))
