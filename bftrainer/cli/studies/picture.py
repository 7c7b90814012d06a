"""A study as it goes on, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bftrainer.cli.shared.terminal import printable, say
from bftrainer.cli.studies.tables import chosen, columns, head, rung_rows, trial_row
from bftrainer.cli.studies.words import study_line

STYLES = {"running": "green", "completed": "bold", "stopped": "dim", "failed": "red", "paused": "yellow"}


def show(views: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    """Show a study as it goes on: a picture on a terminal; elsewhere lines, then return the last view."""
    console = Console()
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            for view in views:
                live.update(picture(view, console.height))
        return None
    said, last = "", None
    for last in views:
        if (line := study_line(last)) != said:
            said = line
            say(line)
    return last


def picture(study: dict[str, Any], height: int) -> Group:
    """Return a study's head, its rungs, and the trials that a terminal of `height` lines can show."""
    rungs = Table("rung", "samples", "trials", "ended", "best", box=None)
    for row in rung_rows(study):
        rungs.add_row(*(printable(cell) for cell in row))
    trials = Table(*columns(study), box=None)
    for t in chosen(study, max(5, height - 10 - len(study["rungs"]))):
        trials.add_row(*(Text(printable(cell)) for cell in trial_row(t)), style=STYLES.get(t["status"], ""))
    return Group(*(Text(printable(line), "bold") for line in head(study)), rungs, trials)
