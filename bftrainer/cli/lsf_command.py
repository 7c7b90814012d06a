"""bftrainer lsf"""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from bftrainer.cli.shared.groups import SuggestingGroup
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import finish


@click.group("lsf", cls=SuggestingGroup)
def command() -> None:
    """See whether bftrainer understands this site's LSF."""


@command.command("check", short_help="Ask LSF, and say what was understood.")
@client_options
def check(config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Ask LSF with each command that the daemon uses to look at it, say what was understood of the answer,
    and flag every assumption that does not hold here. Changes nothing, submits no job, and needs no daemon.
    Run it once, as the daemon's account, before the daemon runs. The exit code is 1 if something is wrong."""
    from bftrainer.schedulers.lsf.check.check import check as asked
    from bftrainer.settings.sources import load

    finish(asyncio.run(asked(load({"state_dir": state_dir}, file=config))), as_json=as_json)
