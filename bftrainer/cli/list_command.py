"""bftrainer list"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bftrainer.cli.shared.options import client_options, connect, print_json, print_table

COLUMNS = ("id", "name", "status", "nodes", "step", "samples", "done", "samples/s", "metrics")


@click.command("list")
@client_options
def command(config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """List your trainers in the order of their arrival; admins see those of all users."""
    found = connect(config, state_dir).call("GET", "trainers")
    if as_json:
        print_json(found)
    elif len({t["user"] for t in found}) > 1:
        print_table(("user", *COLUMNS), [(t["user"], *row(t)) for t in found])
    else:
        print_table(COLUMNS, [row(t) for t in found], empty="no trainers; bftrainer submit SPEC adds one")


def row(t: dict[str, Any]) -> tuple[object, ...]:
    """A trainer as cells of COLUMNS."""
    nodes = f"{len(t['members'])}" + (
        f" (of {len(t['nodes'])})" if len(t["nodes"]) > len(t["members"]) else ""
    )
    return (
        t["id"],
        t["name"],
        t["status"],
        nodes,
        t["step"],
        t["samples"],
        f"{t['samples'] / t['work']:.0%}" if t["work"] else None,
        f"{t['rate']:,.0f}" if t["rate"] else None,
        shown(t["metrics"]),
    )


def shown(metrics: dict[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in sorted(metrics.items()))
