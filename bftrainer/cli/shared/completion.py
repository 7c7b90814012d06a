"""Tab completion of names that only the daemon knows; it offers nothing if no daemon answers at once.

What is offered becomes a part of a command line: only words that a shell takes as they are, whatever answers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.terminal import printable
from bftrainer.errors import BftrainerError

PATIENCE_S = 2.0
"""For so long completion waits for the daemon: the user cannot type meanwhile."""
MOST_OFFERED = 1000


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
        client = connect(ctx.params.get("config"), ctx.params.get("state_dir"), PATIENCE_S)
        answer = client.call("GET", path)
        offered = [
            CompletionItem(name, help=printable(about)[:80])
            for name, about in dict(named(answer)).items()
            if name.startswith(incomplete) and shlex.quote(name) == name and not name.startswith("-")
        ]
    except (BftrainerError, OSError, TypeError, KeyError, AttributeError, ValueError, RecursionError):
        return []
    return offered[:MOST_OFFERED]
