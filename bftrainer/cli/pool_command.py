"""bftrainer pool"""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer.cli.options import client_options, connect, print_json, print_table


@click.command("pool")
@client_options
def command(config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Show every node: idle or busy, its pilot, and the trainer that has it."""
    found = connect(config, state_dir).call("GET", "pool")
    if as_json:
        print_json(found)
        return
    rows = [(n["node"], n["state"], n["pilot"], n["trainer"], n["role"]) for n in found["nodes"]]
    print_table(("node", "state", "pilot", "trainer", "role"), rows)
    click.echo(f"{found['size']} of {len(rows)} nodes in the pool")
