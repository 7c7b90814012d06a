"""bftrainer demo"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.list_command import COLUMNS, row
from bftrainer.cli.shared.options import Positive, print_json
from bftrainer.errors import BftrainerError

if TYPE_CHECKING:
    from rich.console import Group

    from bftrainer.demo.demo import View

LOG_SPEED = 60.0
LEAST_S = 8.0
"""A fragment has to last so long for a worker to start in it and train."""


@click.command("demo")
@click.argument(
    "specs", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option("--seconds", type=Positive(least=5), default=90.0, show_default=True, help="How long at most.")
@click.option("--nodes", type=click.IntRange(min=1, max=64), default=4, show_default=True, help="Slots.")
@click.option("--seed", default=0, show_default=True, help="Of the generated log.")
@click.option(
    "--log",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
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
    type=click.Path(path_type=Path, exists=False),
    help="Keep the daemon's directory as this new one: its record can be replayed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    specs: tuple[Path, ...],
    seconds: float,
    nodes: int,
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
    import dataclasses

    from bftrainer.demo.demo import Demo, summary_lines

    if keep is not None and os.path.lexists(keep):
        raise BftrainerError(f"--keep {keep}: is there already; name a directory that is not")

    options = [
        "--scheduler",
        "local",
        "--nodes",
        str(nodes),
        "--seed",
        str(seed),
        "--t-fwd",
        "60",
        "--poll",
        "0.2",
    ]
    options += ["--objective", "efficiency"]  # three trainers of different speed: all of them run
    pace = speed or (LOG_SPEED if log else 1.0)
    options += ["--speed", str(pace)]
    if log is not None:
        options += ["--log", str(log), "--from", start or _liveliest(log, nodes, seconds, pace)]
    demo = Demo(options, keep)
    try:
        demo.submit(specs)
        _show(demo.watch(seconds), seconds, quiet=as_json)
        summary = demo.finish()
    finally:
        demo.close()
    if as_json:
        print_json({**dataclasses.asdict(summary), "good": summary.good})
    else:
        click.echo("\n" + "\n".join(summary_lines(summary)))
    sys.exit(0 if summary.good else 1)


def _liveliest(log: Path, nodes: int, seconds: float, speed: float) -> str:
    from bftrainer.traces import intervals, logs

    fragments = logs.load(log).intervals
    names = intervals.first_nodes(fragments, nodes)
    begin = intervals.liveliest(fragments, names, seconds * speed, LEAST_S * speed)
    return datetime.fromtimestamp(begin, UTC).isoformat()


def _show(views: Any, seconds: float, *, quiet: bool) -> None:
    """A live view on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if console.is_terminal and not quiet:
        with Live(console=console, refresh_per_second=4) as live:
            for view in views:
                live.update(_picture(view, seconds))
        return
    last = -5.0
    for view in views:
        if not quiet and view.elapsed_s - last >= 5.0:
            last = view.elapsed_s
            who = {n["node"]: n["trainer"] or n["state"] for n in view.pool["nodes"]}
            trainers = "; ".join(f"{t['name']} {t['status']} {t['samples']:,}" for t in view.trainers)
            click.echo(
                f"{view.elapsed_s:5.1f} s  {' '.join(f'{k}={v}' for k, v in who.items())} | {trainers}"
            )


def _picture(view: View, seconds: float) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    pool = Table("node", "state", "trainer", "", box=None, title="pool", title_justify="left")
    for n in view.pool["nodes"]:
        style = "dim" if n["state"] == "busy" else "green" if n["trainer"] else "yellow"
        state = "taken by the main scheduler" if n["state"] == "busy" else "idle"
        pool.add_row(n["node"], state, n["trainer"] or "", n["role"] or "", style=style)
    trainers = Table(*COLUMNS, box=None, title="trainers", title_justify="left")
    for t in view.trainers:
        trainers.add_row(*(Text("" if c is None else str(c)) for c in row(t)))
    names = {t["id"]: t["name"] for t in view.trainers}
    pauses = Table(
        "change", "trainer", "nodes", "step", "pause", box=None, title="last rescales", title_justify="left"
    )
    for p in [p for p in view.pauses if p["kind"] != "restart"][-6:]:
        pauses.add_row(
            p["kind"], names[p["trainer"]], str(p["size"]), str(p["step"]), f"{p['pause_s'] * 1e3:.0f} ms"
        )
    head = Text(
        f"bftrainer, {view.elapsed_s:.0f} of {seconds:.0f} s, {view.pool['size']} nodes in the pool", "bold"
    )
    return Group(head, pool, trainers, pauses)
