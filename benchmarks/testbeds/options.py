"""The options of a demonstration, the same for every batch system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

OPTIONS = (
    click.option("--seconds", type=click.FloatRange(20, 3600), default=60, show_default=True),
    click.option("--nodes", type=click.IntRange(2, 64), default=8, show_default=True),
    click.option(
        "--load", type=click.FloatRange(0.01, 1), default=0.4, show_default=True, help="Share for main jobs."
    ),
    click.option(
        "--jobs",
        type=click.IntRange(2, 2000),
        help="Main jobs.  [default: one every 4 s, at least 24 and 3 a node]",
    ),
    click.option("--seed", default=0, show_default=True, help="Of generated main jobs."),
    click.option(
        "--log", type=click.Path(path_type=Path, exists=True), help="Take main jobs from this SWF log."
    ),
    click.option("--first", default=0, show_default=True, help="How many jobs of the log to leave out."),
    click.option(
        "--study", type=click.Path(path_type=Path, exists=True), help="Submit this study besides (YAML)."
    ),
    click.argument("specs", nargs=-1, type=click.Path(path_type=Path, exists=True)),
)


def demo_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
