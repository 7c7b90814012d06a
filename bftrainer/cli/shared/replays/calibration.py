"""Prints the replay of a daemon's record: predicted beside recorded samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.messages.commands.lines import NOT_WITH

if TYPE_CHECKING:
    from bftrainer.replay.calibrate.compare import HistoryComparison, Line


def show(comparison: HistoryComparison, *, as_json: bool) -> None:
    """Print a comparison, as a table or as JSON."""
    if as_json:
        lines = [_plain(line) for line in comparison.trainers]
        print_json({"total": _plain(comparison.total), "trainers": lines})
        return
    numbers = ("recorded", "predicted", "difference")
    rows = [
        (
            line.name,
            f"{line.recorded:,.0f}",
            f"{line.predicted:,.0f}",
            "" if line.difference is None else f"{line.difference:+.1%}",
        )
        for line in (*comparison.trainers, comparison.total)
    ]
    print_table(("samples processed", *numbers), rows, numbers=numbers)


def refuse_options(**given: object) -> None:
    """Refuse options for the replay of a record, which comes with its own trainers, settings and times.

    Raises:
        UsageError: One of the options has been given.
    """
    for name, value in given.items():
        if value is not None:
            option = "--" + name.removesuffix("_s").replace("_", "-")
            raise click.UsageError(NOT_WITH.say(options=option, other="a LOG that is a daemon's record"))


def _plain(line: Line) -> dict[str, object]:
    percent = None if line.difference is None else 100 * line.difference
    return {
        "name": line.name,
        "samples_recorded": line.recorded,
        "samples_predicted": line.predicted,
        "difference_percent": percent,
    }
