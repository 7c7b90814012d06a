"""bftrainer logs"""

from __future__ import annotations

import time
from pathlib import Path

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options, trainer_argument
from bftrainer.cli.shared.tables import print_json


@click.command("logs")
@trainer_argument
@click.option("--node", help="Only this node's worker.")
@click.option(
    "-n", "--lines", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Per node."
)
@click.option("-f", "--follow", is_flag=True, help="Go on showing what is added, until Ctrl-C.")
@client_options
def command(
    trainer: str,
    node: str | None,
    lines: int,
    follow: bool,
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """Show the last lines that TRAINER's workers printed, node by node.

    Workers print into files that belong to the trainer's user, in a folder that `bftrainer show` names.
    """
    from bftrainer.cli.shared import worker_output

    folder = Path(connect(config, state_dir).call("GET", f"trainers/{trainer}")["log_dir"])
    found = worker_output.last_lines(folder, lines, node)
    if as_json:
        print_json({name: part.text for name, part in found.items()})
        return
    if not found and not follow:
        click.echo("nothing has been printed yet")
    while True:
        for name, part in found.items():
            for line in part.text.splitlines():
                click.echo(f"{name}: {line}")
        if not follow:
            return
        time.sleep(0.5)
        found = worker_output.added(folder, {name: part.end for name, part in found.items()}, node)
