"""bftrainer study export"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input
from bftrainer.cli.studies.words import study_argument
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NEEDS, ONLY_WITH
from bftrainer.messages.files.places import UNWRITABLE
from bftrainer.model.text import cell, counted
from bftrainer.traces.whole_file import write_whole

FIGURES = ("number", "status", "rung", "samples", "value", "run", "failures", "seed", "bracket", "reason")
TIMES = ("began_at", "ended_at", "duration_s")
"""Unix seconds, and how many lie between."""


@click.command("export")
@study_argument
@click.option(
    "--to",
    "form",
    type=click.Choice(["csv", "json", "html", "optuna"]),
    default="csv",
    show_default=True,
    help="A row for each trial, everything, a page with pictures, or a study of Optuna in the storage --url.",
)
@click.option(
    "-o", "--output", type=Input(exists=False), help="Write to this file.  [default: standard output]"
)
@click.option("--url", help="With --to optuna: the storage, such as sqlite:///studies.db.")
@client_options
def command(
    study: str,
    form: str,
    output: Path | None,
    url: str | None,
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """Write STUDY with all its trials as CSV or JSON, as a page with pictures, or into a storage of Optuna.

    optuna-dashboard and other code of Optuna read that storage; a study of the same name there is replaced.
    """
    if url is not None and form != "optuna":
        raise click.UsageError(ONLY_WITH.say(options="--url", other="--to optuna"))
    found = connect(config, state_dir).study(study)
    if form == "optuna":
        from bftrainer.search.optuna.export import in_storage

        if not url:
            what = "the storage to write into, such as sqlite:///studies.db"
            raise BftrainerError(NEEDS.say(command="--to optuna", option="--url", what=what))
        count = len(in_storage(found, url).trials)
        say(
            f"wrote {counted(count, 'trial')} of {found['name']} to {url}; look at them: "
            f"optuna-dashboard {url}"
        )
        return
    text = _text(found, "json" if as_json else form)
    try:
        if output is not None:
            write_whole(output, text)
        else:
            sys.stdout.write(text)
    except OSError as error:
        raise BftrainerError(UNWRITABLE.say(path=output, why=error.strerror)) from error


def _text(study: dict[str, Any], form: str) -> str:
    """The study as a text of this form."""
    if form == "html":
        from bftrainer.search.optuna.pictures import page

        return page(study)
    if form == "json":
        return json.dumps(study, indent=2) + "\n"
    out = io.StringIO()
    write_csv(study, out)
    return out.getvalue()


def write_csv(study: dict[str, Any], file: Any) -> None:
    """Write a study's trials as CSV, a column for each parameter."""
    names = list(dict.fromkeys(name for t in study["table"] for name in t["params"]))
    writer = csv.writer(file)
    writer.writerow([*FIGURES, *TIMES, *map(cell, names)])
    for t in study["table"]:
        cells = [
            *(t[key] for key in FIGURES),
            *(t.get(key) for key in TIMES),
            *(t["params"].get(name, "") for name in names),
        ]
        writer.writerow([cell(value) for value in cells])
