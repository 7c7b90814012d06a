"""Tab completion of names that only the daemon knows; it offers nothing if no daemon answers."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.terminal import printable
from bftrainer.errors import BftrainerError


def complete_trainer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of trainers, each with its status."""
    found = _answer(ctx, "trainers") or []
    names = ((printable(t["name"]), t["status"]) for t in found)
    return [CompletionItem(name, help=status) for name, status in names if name.startswith(incomplete)]


def complete_node(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of nodes, each with its state."""
    rows = (_answer(ctx, "pool") or {"nodes": []})["nodes"]
    return [
        CompletionItem(printable(n["node"]), help=printable(n["why"] or n["state"]))
        for n in rows
        if n["node"].startswith(incomplete)
    ]


def _answer(ctx: click.Context, path: str) -> Any:
    """Ask the daemon while a command is being typed; None if it does not answer."""
    try:
        return connect(ctx.params.get("config"), ctx.params.get("state_dir")).call("GET", path)
    except BftrainerError:
        return None
