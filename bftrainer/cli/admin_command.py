"""bftrainer admin"""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer.cli import admin_check, admin_impact
from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.groups import SuggestingGroup
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say


@click.group("admin", cls=SuggestingGroup)
def command() -> None:
    """Decide whether idle nodes are used, check how a site is set up, and see what main jobs notice.

    Orders are for admins: root, the daemon's own account, and the users in the setting admins. An order holds
    until the next one, also through restarts of the daemon.
    """


command.add_command(admin_check.command)
command.add_command(admin_impact.command)


@command.command("pause")
@client_options
def pause(config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Take no more nodes. Trainers go on where they are; what the main scheduler takes back is not
    replaced."""
    _order("pause", config, state_dir, as_json)


@command.command("drain", short_help="Give all nodes back; trainers write checkpoints and wait.")
@client_options
def drain(config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Give all nodes back, in an orderly way: every trainer writes a checkpoint and waits, then the
    pilots end. Trainers stay submitted, and new ones may be."""
    _order("drain", config, state_dir, as_json)


@command.command("resume")
@client_options
def resume(config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Use idle nodes again; trainers go on from where they were."""
    _order("resume", config, state_dir, as_json)


def _order(order: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    now = connect(config, state_dir).call("POST", f"admin/{order}")
    if as_json:
        print_json(now)
    else:
        say(f"{now['operation']}; {now['pilots']} pilots, {now['pool'] - now['unused']} nodes in use")
