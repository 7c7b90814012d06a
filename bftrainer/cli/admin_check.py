"""bftrainer admin check"""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import finish


@click.command("check", short_help="Look at how this site is set up, and say what to do.")
@click.option(
    "--user", default="", metavar="NAME", help="A user of the daemon: may it run pilots as this one?"
)
@client_options
def command(user: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Look at how this site is set up, and say what to do: settings, state directory, socket, sudo's rule,
    munge, systemd's unit, the batch system. Changes nothing, submits no job, and needs no daemon that runs.
    Run it as root or as the daemon's account. The exit code is 1 if something is wrong."""
    from bftrainer.settings.sources import files_of, load
    from bftrainer.sitecheck.check import check

    found = check(load({"state_dir": state_dir}, file=config), files_of(config), user)
    finish(found, as_json=as_json)
