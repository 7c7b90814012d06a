"""bftrainer trace convert"""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer.cli.shared.progress import progress_bar
from bftrainer.cli.shared.replays.log_options import log_argument, log_options, print_notes, read_log
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import OutputPath, Positive, parse_utc
from bftrainer.model.text import counted
from bftrainer.traces.logs import LogOptions


@click.command("convert")
@log_argument
@click.argument("out", type=OutputPath())
@log_options
@click.option("--from", "begin", metavar="ISO", help="Where to begin, UTC.  [default: the log's begin]")
@click.option("--hours", type=Positive(), help="How long.  [default: to the log's end]")
@click.option("--nodes", type=click.IntRange(min=1), help="Take the first N node names.")
def command(
    log: Path, out: Path, log_options: LogOptions, begin: str | None, hours: float | None, nodes: int | None
) -> None:
    """Write LOG as a CSV of idle intervals to OUT, packed if that ends in .gz or .xz.

    What is still idle at the end ends there. OUT appears when it is complete.
    """
    from bftrainer.traces.intervals import write
    from bftrainer.traces.logs import cut

    found = cut(read_log(log, log_options), parse_utc(begin), hours, nodes)
    print_notes(found)
    with progress_bar("write") as progress:
        write(out, found.intervals, found.end, progress)
    say(
        f"{out}: {counted(len(found.intervals), 'interval')} of {counted(len(found.nodes), 'node')}",
        err=True,
    )
