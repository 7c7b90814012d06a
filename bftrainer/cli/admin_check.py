"""bftrainer admin check"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table

if TYPE_CHECKING:
    from bftrainer.model.finding import Finding


@click.command("check", short_help="Look at how this site is set up, and say what to do.")
@click.option(
    "--user", default="", metavar="NAME", help="A user of the daemon: may it run pilots as this one?"
)
@client_options
def command(user: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Look at how this site is set up, and say what to do: settings, state directory, socket, sudo's rule,
    munge, systemd's unit, the batch system. Changes nothing, submits no job, and needs no daemon that runs.
    Run it as root or as the daemon's account. The exit code is 1 if something is wrong."""
    from bftrainer.model.finding import Level
    from bftrainer.settings.sources import files_of, load
    from bftrainer.sitecheck.check import check

    found = check(load({"state_dir": state_dir}, file=config), files_of(config), user)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        print_table(("", "check", "found"), [row for one in found for row in _rows(one)])
    sys.exit(1 if any(one.level is Level.WRONG for one in found) else 0)


def _rows(finding: Finding) -> list[tuple[str, str, str]]:
    """What was found, with what to do about it on a line of its own."""
    found = [(finding.level.value, finding.check, finding.found)]
    return [*found, ("", "", f"-> {finding.remedy}")] if finding.remedy else found
