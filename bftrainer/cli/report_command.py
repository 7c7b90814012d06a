"""bftrainer report"""

from __future__ import annotations

from pathlib import Path

import click

from bftrainer.cli.shared.options import json_option
from bftrainer.cli.shared.progress import progress_bar
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input, OutputPath
from bftrainer.model.text import shown


@click.command("report")
@click.argument("runs", type=Input(dir_okay=True), nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--out",
    type=OutputPath(),
    default=Path("report.html"),
    show_default=True,
    help="The page.",
)
@click.option("--png", type=OutputPath(file_okay=False), help="Folder for the pictures as PNG.")
@click.option("--title", default="Replays of idle nodes", show_default=True, help="The page's title.")
@json_option
def command(runs: tuple[Path, ...], out: Path, png: Path | None, title: str, as_json: bool) -> None:
    """Make one HTML page about replays; it needs no other file and no network.

    RUN is a record (bftrainer replay --out NAME.json.gz), a folder of records, or the folder of a sweep
    with --record.
    """
    from bftrainer.replay.report import report

    with progress_bar("report", shown=not as_json) as advance:
        records = report.read(runs, lambda done: advance(done / 2))
        made = report.make(records, shown(title), lambda done: advance((1 + done) / 2))
    report.write(made, out, png)
    files = [out, *(png / f"{picture.name}.png" for picture in (made.pictures if png else ()) if png)]
    if as_json:
        print_json({"runs": [run.name for run in records], "files": [str(file) for file in files]})
    else:
        say(
            f"{len(records)} run{'s' * (len(records) != 1)} in {out}"
            + (f", {len(made.pictures)} pictures in {png}" if png else "")
        )
