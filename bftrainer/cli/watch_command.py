"""bftrainer watch"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli.shared.connection import changes, connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.types import Positive

if TYPE_CHECKING:
    from bftrainer.demo.view import DaemonView
    from bftrainer.series.timeline import Timeline


@click.command("watch")
@click.option(
    "--minutes",
    type=Positive(least=0.1, most=1440),
    default=5.0,
    show_default=True,
    help="How far back the nodes are shown.",
)
@click.option("--every", "every_s", type=Positive(least=0.2), default=1.0, help="Look at most so often (s).")
@client_options
def command(
    minutes: float, every_s: float, config: Path | None, state_dir: str | None, as_json: bool
) -> None:
    """Watch nodes and trainers: who had which node in the last minutes, how far trainers are, how long their
    rescales paused them, and what was decided.

    Goes on until Ctrl-C. Without a terminal it prints a line for each change; with --json, the nodes over
    time once.
    """
    from bftrainer.cli.shared.live.watching import show
    from bftrainer.demo.view import Looker

    client = connect(config, state_dir)
    looker = Looker(client)
    if as_json:
        print_json(asdict(_course(looker.look(), minutes)))
        return
    views = (looker.look() for _ in changes(client, "trainers", "nodes", "decisions", every_s=every_s))
    show(views, lambda view: _course(view, minutes))


def _course(view: DaemonView, minutes: float) -> Timeline:
    """The nodes over the last minutes, up to now."""
    from bftrainer.series.timeline import timeline

    now = time.time()
    return timeline(view.events, view.pauses, view.pool["nodes"], now - 60 * minutes, now)
