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

LOG_SPEED = 60.0
LEAST_S = 8.0
"""A fragment must last at least so long for a worker to start in it and train."""
DAEMON_OPTIONS = (
    *("--scheduler", "local", "--t-fwd", "60", "--poll", "0.2"),
    *("--objective", "efficiency"),  # trainers of different speed: all of them run
)


@click.command("demo")
@click.argument("specs", nargs=-1, required=True, type=Input())
@click.option("--seconds", type=Positive(least=5), default=90.0, show_default=True, help="How long at most.")
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
@click.option("--seed", default=0, show_default=True, help="Of the generated log.")
@click.option(
    "--log",
    type=Input(),
    help="Play a real log of idle nodes, of any format that `bftrainer trace` knows.",
)
@click.option(
    "--speed",
    type=Positive(most=100_000),
    help="Log seconds per second.  [default: 1; log: 60]",
)
@click.option(
    "--from", "start", metavar="ISO", help="Where in LOG to begin, UTC.  [default: where most happens]"
)
@click.option(
    "--keep",
    type=Input(dir_okay=True, exists=False),
    help="Keep the daemon's directory as this new one: its record can be replayed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    specs: tuple[Path, ...],
    seconds: float,
    nodes: int,
    gpus: int,
    share: str,
    seed: int,
    log: Path | None,
    speed: float | None,
    start: str | None,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Show bftrainer at work on this machine: a daemon of its own, and the trainers in SPECS.

    The machine's slots are "idle nodes" that come and go as a generated log says, or a real one. Ends
    with a summary; exits with 1 if a step was lost or a process was left behind.
    """
    from bftrainer.cli.shared.demo_views import show
    from bftrainer.demo.session import DemoSession
    from bftrainer.demo.summary import summary_lines

    if keep is not None and os.path.lexists(keep):
        raise BftrainerError(f"--keep {keep}: is there already; name a directory that is not")
    pace = speed or (LOG_SPEED if log else 1.0)
    options = [*DAEMON_OPTIONS, "--nodes", str(nodes), "--gpus", str(gpus), "--share", share]
    options += ["--seed", str(seed), "--speed", str(pace)]
    if log is not None:
        options += ["--log", str(log), "--from", start or _liveliest(log, nodes, seconds, pace)]
    demo = DemoSession(options, keep)
    try:
        demo.submit(specs)
        show(demo.watch(seconds), seconds, quiet=as_json)
        summary = demo.finish()
    finally:
        demo.close()
    if as_json:
        print_json({**dataclasses.asdict(summary), "good": summary.good})
    else:
        say("\n" + "\n".join(summary_lines(summary)))
    sys.exit(0 if summary.good else 1)


def _liveliest(log: Path, nodes: int, seconds: float, speed: float) -> str:
    """Find the part of a log in which most fragments are long enough to train; return when it begins, ISO."""
    from bftrainer.traces import intervals, logs

    fragments = logs.load(log).intervals
    names = intervals.first_nodes(fragments, nodes)
    begin = intervals.liveliest(fragments, names, seconds * speed, LEAST_S * speed)
    return datetime.fromtimestamp(begin, UTC).isoformat()
