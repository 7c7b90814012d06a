"""bftrainer metrics"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.figures import figures, moment, speed, whole
from bftrainer.cli.shared.options import client_options, trainer_argument
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import OutputPath
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NOT_WITH, NOTHING_REPORTED
from bftrainer.series.picture import PlotOver, draw
from bftrainer.series.points import Point, as_csv, points_of

LINES, POINTS = 20, 100_000
"""Without -n: lines of a table, and points otherwise."""


@click.command("metrics")
@trainer_argument
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1_000_000),
    help=f"How many of the last points.  [default: {LINES} in a table, else {POINTS}]",
)
@click.option("--csv", "as_text", is_flag=True, help="Print CSV.")
@click.option("--plot", type=OutputPath(".png", ".svg", ".pdf"), help="Draw to this file (.png, .svg, .pdf).")
@click.option(
    "--over",
    type=click.Choice([over.value for over in PlotOver]),
    default=PlotOver.STEP.value,
    show_default=True,
    help="What --plot draws the figures over.",
)
@click.option(
    "--tensorboard",
    type=OutputPath(file_okay=False),
    help="Write into the folder <name>-<number> of this folder, for TensorBoard.",
)
@client_options
def command(
    trainer: str,
    limit: int | None,
    as_text: bool,
    plot: Path | None,
    over: str,
    tensorboard: Path | None,
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """Show the course of TRAINER: its step, samples, nodes, speed and metrics, at the times of its reports.

    The daemon keeps one report in 5 s, and old ones for as long as it
    keeps events. A metric has its latest value in each. Tables, CSV and JSON have all that happened;
    pictures and TensorBoard leave out the steps that the trainer repeated from a checkpoint.
    """
    if as_text and as_json:
        raise click.UsageError(NOT_WITH.say(options="--csv", other="--json"))
    client = connect(config, state_dir)
    about = client.call("GET", f"trainers/{trainer}")
    is_table = not (as_text or as_json or plot or tensorboard)
    most = limit or (LINES if is_table else POINTS)
    found = client.rows("reports", most + 1, str(about["id"]))
    rows, more = found[-most:], len(found) > most
    points = points_of(rows)
    if as_json:
        print_json(rows)
    elif as_text:
        say(as_csv(points).removesuffix("\n"))
    elif is_table:
        columns = ("time", "step", "samples", "nodes", "samples/s", "metrics")
        print_table(columns, [_row(p) for p in points], empty="nothing is reported and stored yet")
    _export(points, f"{about['name']}-{about['id']}", plot, over, tensorboard)
    if more:
        say(f"earlier points are left out; -n takes more than {most:,}", err=not is_table)


def _export(
    points: Sequence[Point], name: str, plot: Path | None, over: str, tensorboard: Path | None
) -> None:
    """Write the files that were asked for."""
    if not points and (plot or tensorboard):
        raise BftrainerError(NOTHING_REPORTED.say(name=name))
    if plot is not None:
        left_out = draw(points, plot, name, PlotOver(over))
        say(f"drawn to {plot}" + (f"; {left_out} metrics are left out" if left_out else ""), err=True)
    if tensorboard is not None:
        from bftrainer.series.tensorboard import export

        folder = tensorboard / name
        count = export(points, folder)
        say(f"{count:,} points in {folder}; see them: tensorboard --logdir {tensorboard}", err=True)


def _row(point: Point) -> tuple[object, ...]:
    counts = (whole(point.step), whole(point.samples), point.nodes)
    return moment(point.time), *counts, speed(point.rate), figures(point.metrics)
