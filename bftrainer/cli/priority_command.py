"""bftrainer priority"""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options, trainer_argument
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Positive


@click.command("priority")
@trainer_argument
@click.argument("priority", type=Positive())
@client_options
def command(trainer: str, priority: float, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Give TRAINER another PRIORITY, a number above 0: the highest is the first in bftrainer queue.

    It keeps the time of its arrival. For all trials of a study: bftrainer study priority.
    """
    prioritise(f"trainers/{trainer}", priority, config, state_dir, as_json)


def prioritise(what: str, priority: float, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Give what has this path in the API, a trainer or a study, another priority, and print it."""
    body = {"priority": priority}
    row = connect(config, state_dir).call("POST", f"{what}/priority", body=body)
    if as_json:
        print_json(row)
    else:
        say(f"{row['name']}: priority {row['priority']:g}")
