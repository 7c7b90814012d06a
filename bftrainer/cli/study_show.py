"""bftrainer study show, and bftrainer study best"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.studies import study_argument
from bftrainer.cli.shared.study_forecast import forecast
from bftrainer.cli.shared.study_tables import COLUMNS, chosen, head, rung_rows, trial_row
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Positive
from bftrainer.errors import BftrainerError

SHOWN = 40
"""So many trials are shown: those that run, and the best; --all shows every one."""


@click.command("show")
@study_argument
@click.option("--all", "every", is_flag=True, help="Every trial, by number.")
@click.option("--watch", is_flag=True, help="Show it as it goes on, until it ends.")
@click.option(
    "--every", "every_s", type=Positive(least=0.2), default=1.0, help="With --watch: how often (s)."
)
@client_options
def command(
    study: str,
    every: bool,
    watch: bool,
    every_s: float,
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """Show STUDY, by name or number: its rungs, and its trials with the course of their metric."""
    client = connect(config, state_dir)

    def views() -> Iterator[dict[str, Any]]:
        while True:
            yield (found := client.call("GET", f"studies/{study}"))
            if not watch or found["ended_at"]:
                return
            time.sleep(every_s)

    if as_json:
        for found in views():
            print_json(found)
    else:
        last = _watched(views()) if watch else next(views())
        if last is not None:
            _print(last, SHOWN if not every else len(last["table"]))


@click.command("best")
@study_argument
@client_options
def best(study: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Show the parameters of the best trial of STUDY, and the command that it ran."""
    found = connect(config, state_dir).call("GET", f"studies/{study}")
    own = found["best"]
    if own is None:
        raise BftrainerError(
            f"no trial of {study} has a result yet; follow it: bftrainer study show --watch {study}"
        )
    if as_json:
        print_json(own)
        return
    say(f"{found['metric']} {own['value']:.6g} in trial {own['number']} after {own['samples']:,} samples")
    for name, value in own["params"].items():
        say(f"  {name}: {value}")
    row = next(t for t in found["table"] if t["number"] == own["number"])
    say(f"trainer {row['trainer']}: {shlex.join(row['command'])}")
    say(f"checkpoints: bftrainer show {row['trainer']}")


def _print(study: dict[str, Any], most: int) -> None:
    for text in head(study):
        say(text)
    if ahead := forecast(study):
        say(ahead)
    say("")
    print_table(("rung", "samples", "trials", "ended", "best"), rung_rows(study))
    say("")
    rows = chosen(study, most)
    print_table(COLUMNS, [trial_row(t) for t in rows])
    if len(rows) < len(study["table"]):
        say(f"{len(study['table']) - len(rows):,} more trials; --all shows them")


def _watched(views: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    """Show a study as it goes on. Returns its last view where that has not been shown as a whole."""
    from bftrainer.cli.shared.study_picture import show

    return show(views)
