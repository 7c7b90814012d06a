"""What commands that read a log of idle nodes share: the argument, reading it, and what to say of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli.shared.progress import progress_bar
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input

if TYPE_CHECKING:
    from bftrainer.traces.logs import Log, LogOptions

log_argument = click.argument("log", type=Input(dir_okay=True))


def read_log(path: Path, options: LogOptions) -> Log:
    """Read a log behind a progress bar.

    Raises:
        BftrainerError: The log cannot be read, or too much of it cannot be understood.
    """
    from bftrainer.traces.logs import load

    with progress_bar("read") as progress:
        return load(path, options, progress)


def print_notes(log: Log) -> None:
    """Print on standard error what the reader noted, and which lines it left out."""
    for note in log.notes:
        say(f"note: {note}", err=True)
    if log.broken:
        say(f"note: {log.broken:,} of {log.lines:,} lines left out, not understood:", err=True)
        for example in log.examples:
            say(f"  {example}", err=True)
