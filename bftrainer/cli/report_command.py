"""bftrainer report"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli.shared.options import json_option
from bftrainer.cli.shared.progress import progress_bar
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input, OutputPath
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NOT_WITH
from bftrainer.messages.files.places import UNWRITABLE
from bftrainer.model.text import shown

if TYPE_CHECKING:
    from bftrainer.replay.record.data import ReportData


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
@click.option(
    "--interactive",
    is_flag=True,
    help="One record as the page of bftrainer web shows it: a map of the nodes, with a slider that plays.",
)
@json_option
def command(
    runs: tuple[Path, ...], out: Path, png: Path | None, title: str, interactive: bool, as_json: bool
) -> None:
    """Make one HTML page about replays; it needs no other file and no network.

    RUN is a record (bftrainer replay --out NAME.json.gz), a folder of records, or the folder of a sweep
    with --record.
    """
    from bftrainer.replay.report import report

    if interactive:
        records = report.read(runs)
        if len(records) != 1 or png:
            raise click.UsageError(NOT_WITH.say(options="--interactive", other="--png, or several records"))
        _write_page(records[0], shown(title), out)
        _tell(records, [out], as_json=as_json)
        return
    with progress_bar("report", shown=not as_json) as advance:
        records = report.read(runs, lambda done: advance(done / 2))
        made = report.make(records, shown(title), lambda done: advance((1 + done) / 2))
    report.write(made, out, png)
    files = [out, *(png / f"{picture.name}.png" for picture in (made.pictures if png else ()) if png)]
    _tell(records, files, as_json=as_json)


def _write_page(record: ReportData, title: str, out: Path) -> None:
    from bftrainer.replay.record.storage import as_json
    from bftrainer.traces.whole_file import whole_file
    from bftrainer.web.pages import one_file

    try:
        with whole_file(out) as draft:
            draft.write_text(one_file(title, as_json(record)), encoding="utf-8")
    except OSError as error:
        raise BftrainerError(UNWRITABLE.say(path=out, why=error.strerror or error)) from error


def _tell(records: Sequence[ReportData], files: Sequence[Path], *, as_json: bool) -> None:
    if as_json:
        print_json({"runs": [run.name for run in records], "files": [str(file) for file in files]})
        return
    pictures = f", {len(files) - 1} pictures in {files[1].parent}" if len(files) > 1 else ""
    say(f"{len(records)} run{'s' * (len(records) != 1)} in {files[0]}{pictures}")
