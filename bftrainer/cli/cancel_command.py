"""bftrainer cancel"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.shared.completion import complete_trainer
from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.figures import whole
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import TrainerName
from bftrainer.errors import BftrainerError

if TYPE_CHECKING:
    from bftrainer.api.client import Client

PATIENCE_S = 3.0
"""Seconds after which the command says what it waits for."""


@click.command("cancel")
@click.argument("trainers", type=TrainerName(), nargs=-1, required=True, shell_complete=complete_trainer)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until its workers are gone.")
@client_options
def command(
    trainers: tuple[str, ...], wait: bool, config: Path | None, state_dir: str | None, as_json: bool
) -> None:
    """End TRAINERS, by name or number. Their workers write a checkpoint and leave; those that do not are
    killed.

    JSON is the trainer, or an array where several are named.
    """
    client = connect(config, state_dir)
    ids, refused = list[int](), list[str]()
    for trainer in dict.fromkeys(trainers):
        try:
            ids.append(int(client.call("DELETE", f"trainers/{trainer}")["id"]))
        except BftrainerError as error:  # the others are to end anyway
            if len(trainers) == 1:
                raise
            refused.append(str(error))
    ended = [_ended(client, id_) if wait else client.call("GET", f"trainers/{id_}") for id_ in ids]
    if as_json:
        print_json(ended[0] if len(trainers) == 1 else ended)
    for found in [] if as_json else ended:
        say(f"{found['name']} ({found['id']}): {found['status']} after {whole(found['samples'])} samples")
    if refused:
        raise BftrainerError("\n".join(refused))


def _ended(client: Client, trainer: int) -> dict[str, Any]:
    """A trainer that is to end, when its last worker has gone."""
    began, told = time.monotonic(), False
    while True:
        found: dict[str, Any] = client.call("GET", f"trainers/{trainer}")
        if found["ended_at"] and not found["workers"]:
            return found
        if not told and time.monotonic() - began > PATIENCE_S:
            told = True
            say(f"{found['name']} is to end; waiting for its workers. Ctrl-C ends the waiting only", err=True)
        time.sleep(0.1)
