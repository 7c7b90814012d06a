"""bftrainer cancel"""

from __future__ import annotations

import time
from pathlib import Path

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options, trainer_argument
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say


@click.command("cancel")
@trainer_argument
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until its workers are gone.")
@client_options
def command(trainer: str, wait: bool, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """End TRAINER. Its workers write a checkpoint and leave; those that do not are killed."""
    client = connect(config, state_dir)
    answer = client.call("DELETE", f"trainers/{trainer}")
    found = client.call("GET", f"trainers/{answer['id']}")
    while wait and (found["workers"] or not found["ended_at"]):
        time.sleep(0.1)
        found = client.call("GET", f"trainers/{answer['id']}")
    if as_json:
        print_json(found)
    else:
        say(f"{found['name']}: {found['status']} after {found['samples']:,} samples")
