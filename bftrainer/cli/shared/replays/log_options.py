"""The options that say how a log of idle nodes is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from bftrainer.cli.shared.progress import progress_bar
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Finite, Input
from bftrainer.messages.commands.lines import LINES_LEFT_OUT
from bftrainer.traces.formats.options import FITS, SHARES
from bftrainer.traces.logs import FORMATS, Log, LogOptions, load

log_argument = click.argument("log", type=Input(dir_okay=True))
F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--format",
        "log_format",
        type=click.Choice(list(FORMATS)),
        help="Format of the log.  [default: told from its content]",
    ),
    click.option(
        "--machine-nodes",
        type=click.IntRange(1, 1_000_000),
        help="Nodes of the machine.  [default: what the log says or names]",
    ),
    click.option(
        "--cores-per-node",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="How many processors of an SWF log make a node.",
    ),
    click.option(
        "--share",
        type=click.Choice(SHARES),
        default="node",
        show_default=True,
        help="Whether nodes are idle as a whole, or each of their GPUs by itself.",
    ),
    click.option(
        "--gpus-per-node",
        type=click.IntRange(1, 1024),
        default=1,
        show_default=True,
        help="How many GPUs a node has.",
    ),
    click.option(
        "--gpu-jobs",
        type=click.Choice(FITS),
        help="Jobs use so many GPUs as the log says (processors of an SWF log), placed on nodes so.  "
        "[default: philly: first-fit; else jobs use whole nodes]",
    ),
    click.option(
        "--min-gap",
        type=Finite(min=0.0, max=1e9),
        default=0.0,
        show_default=True,
        metavar="SECONDS",
        help="Leave out what is idle for less: the turn from one job to the next.",
    ),
    click.option(
        "--max-broken",
        type=Finite(min=0.0, max=1.0),
        default=0.01,
        show_default=True,
        metavar="SHARE",
        help="Refuse the log if more than this share of its lines cannot be understood.",
    ),
    click.option(
        "--launch-hosts",
        default=LogOptions().launch_hosts,
        show_default=True,
        metavar="PATTERNS",
        help="Hosts of LSF that only launch jobs, as a*,b*: they are no nodes.",
    ),
)


def read_log(path: Path, options: LogOptions) -> Log:
    """Read a log behind a progress bar.

    Raises:
        BftrainerError: The log cannot be read, or too much of it cannot be understood.
    """
    with progress_bar("read") as progress:
        return load(path, options, progress)


def print_notes(log: Log) -> None:
    """Print on standard error what the reader noted, and which lines it left out."""
    for note in log.notes:
        say(f"note: {note}", err=True)
    if log.broken:
        say(f"note: {LINES_LEFT_OUT.say(broken=log.broken, lines=log.lines)}:", err=True)
        for example in log.examples:
            say(f"  {example}", err=True)


def log_options(command: F) -> F:
    """Add the options to a command, which gets them as one `log_options: LogOptions`."""

    @wraps(command)
    def merged(
        *args: Any,
        log_format: str | None,
        machine_nodes: int | None,
        cores_per_node: int,
        share: str,
        gpus_per_node: int,
        gpu_jobs: str | None,
        min_gap: float,
        max_broken: float,
        launch_hosts: str,
        **others: Any,
    ) -> Any:
        """Call the command with the options in one object."""
        chosen = LogOptions(
            log_format,
            machine_nodes,
            cores_per_node,
            min_gap,
            max_broken,
            launch_hosts,
            share=share,
            gpus_per_node=gpus_per_node,
            gpu_jobs=gpu_jobs,
        )
        return command(*args, log_options=chosen, **others)

    decorated: Any = merged
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    found: F = decorated
    return found
