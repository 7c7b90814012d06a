"""bftrainer cancel"""

from __future__ import annotations

import time
from pathlib import Path

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options, trainer_argument
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say

PATIENCE_S = 3.0
"""After so long the command says what it waits for."""


@click.command("cancel")
@trainer_argument
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until its workers are gone.")
@client_options
def command(trainer: str, wait: bool, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """End TRAINER. Its workers write a checkpoint and leave; those that do not are killed."""
    client = connect(config, state_dir)
    answer = client.call("DELETE", f"trainers/{trainer}")
    found = client.call("GET", f"trainers/{answer['id']}")
    began, told = time.monotonic(), False
    while wait and (found["workers"] or not found["ended_at"]):
        if not told and time.monotonic() - began > PATIENCE_S:
            told = True
            say(f"{found['name']} is to end; waiting for its workers. Ctrl-C ends the waiting only", err=True)
        time.sleep(0.1)
        found = client.call("GET", f"trainers/{answer['id']}")
    if as_json:
        print_json(found)
    else:
        say(f"{found['name']}: {found['status']} after {found['samples']:,} samples")
