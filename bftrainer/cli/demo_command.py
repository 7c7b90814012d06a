"""bftrainer demo"""

from __future__ import annotations

import dataclasses
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input, Positive
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import ONLY_WITH
from bftrainer.messages.files.places import UNWRITABLE

LOG_SPEED = 60.0
LEAST_S = 8.0
"""Seconds that a fragment must last for a worker to start in it and train."""
DAEMON_OPTIONS = (
    *("--scheduler", "local", "--t-fwd", "60", "--poll", "0.2"),
    *("--objective", "efficiency"),  # trainers of different speed: all of them run
)


@click.command("demo")
@click.argument("specs", nargs=-1, required=True, type=Input())
@click.option("--seconds", type=Positive(least=5), help="How long at most.  [default: 150; log: 90]")
@click.option("--nodes", type=click.IntRange(min=1, max=64), default=4, show_default=True, help="Slots.")
@click.option(
    "--gpus",
    type=click.IntRange(min=0, max=64),
    default=0,
    show_default=True,
    help="GPUs of each slot, which are simulated where this machine has too few: a worker for each.",
)
@click.option(
    "--share",
    type=click.Choice(["node", "gpu"]),
    default="node",
    show_default=True,
    help="What trainers get: whole slots, or single GPUs of them.",
)
@click.option(
    "--log",
    type=Input(),
    help="Play a real log of idle nodes instead, of any format that `bftrainer trace` knows, with any number "
    "of trainers.",
)
@click.option("--speed", type=Positive(most=100_000), help="Log seconds per second.  [default: 60]")
@click.option(
    "--from", "start", metavar="ISO", help="Where in LOG to begin, UTC.  [default: where most happens]"
)
@click.option(
    "--picture",
    type=Input(exists=False),
    help="Draw the nodes over time into this file (SVG); with the suffix .json, write the record of it.",
)
@click.option(
    "--keep",
    type=Input(dir_okay=True, exists=False),
    help="Keep the daemon's directory as this new one: its record can be replayed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    specs: tuple[Path, ...],
    seconds: float | None,
    nodes: int,
    gpus: int,
    share: str,
    log: Path | None,
    speed: float | None,
    start: str | None,
    picture: Path | None,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Show bftrainer at work on this machine: a daemon of its own, and the trainer in SPECS.

    Four acts: the trainer grows to idle nodes, gives one back to a main job, has one killed, and loses all.
    The machine's slots are the nodes; the main jobs are made up, and all that trains is real. With --log, the
    nodes come and go as in a real log.

    Says first where its page is, as `bftrainer web` shows it. Ends with the nodes over time and a summary;
    exits with 1 if a step was lost although a node survived, or a process was left behind.
    """
    from bftrainer.cli.shared.live.demo_views import closing, show
    from bftrainer.demo.picture import draw
    from bftrainer.demo.play import played
    from bftrainer.demo.session import DemoSession
    from bftrainer.demo.summary import summary_lines

    _check(specs, nodes, gpus, share, log, speed, start)
    if keep is not None and os.path.lexists(keep):
        raise BftrainerError(UNWRITABLE.say(path=f"--keep {keep}", why="it is there already"))
    most = seconds or (90.0 if log else 150.0)
    options = [*DAEMON_OPTIONS, "--nodes", str(nodes), "--gpus", str(gpus), "--share", share]
    if log is not None:
        pace = speed or LOG_SPEED
        options += ["--speed", str(pace), "--log", str(log)]
        options += ["--from", start or _liveliest(log, nodes, most, pace)]
    demo = DemoSession(options, keep, main_jobs=log is None)
    try:
        if not as_json:
            say(demo.open_page())
        if log is None:
            views = played(demo, specs[0], most)
        else:
            demo.submit(specs)
            views = demo.watch(most)
        last = show(views, most, quiet=as_json)
        summary = demo.finish()
    finally:
        demo.close()
    if picture is not None:
        draw(last, picture)
    if as_json:
        told = [dataclasses.asdict(told) for told in last.told]
        not_played = {"told": told, "not_played": last.acts_left}
        print_json({**dataclasses.asdict(summary), **not_played, "good": summary.good})
    else:
        closing(last, summary_lines(summary), picture)
    sys.exit(0 if summary.good else 1)


def _check(
    specs: tuple[Path, ...],
    nodes: int,
    gpus: int,
    share: str,
    log: Path | None,
    speed: float | None,
    start: str | None,
) -> None:
    """Refuse what does not go together."""
    if log is not None:
        return
    for option, value in (("--speed", speed), ("--from", start)):
        if value is not None:
            raise click.UsageError(ONLY_WITH.say(options=option, other="--log"))
    if len(specs) > 1:
        raise click.UsageError(ONLY_WITH.say(options=f"{len(specs)} specs", other="--log"))
    if nodes * (gpus if share == "gpu" else 1) < 2:
        raise click.UsageError(ONLY_WITH.say(options="fewer than 2 nodes", other="--log"))


def _liveliest(log: Path, nodes: int, seconds: float, speed: float) -> str:
    """Find the part of a log in which most fragments are long enough to train; return when it begins, ISO."""
    from bftrainer.traces import intervals, logs

    fragments = logs.load(log).intervals
    names = intervals.first_nodes(fragments, nodes)
    begin = intervals.liveliest(fragments, names, seconds * speed, LEAST_S * speed)
    return datetime.fromtimestamp(begin, UTC).isoformat()
