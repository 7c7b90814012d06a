"""bftrainer trace info"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.shared.options import json_option
from bftrainer.cli.shared.replays.log_options import log_argument, log_options, print_notes, read_log
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import OutputPath
from bftrainer.traces.logs import LogOptions

if TYPE_CHECKING:
    from bftrainer.traces.characteristics import Characteristics
    from bftrainer.traces.logs import Log

NAMES = {0: "least", 50: "median", 100: "most"}
"""Percentiles that have a name."""
UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


@click.command("info")
@log_argument
@log_options
@click.option(
    "--png",
    type=OutputPath(".png", ".svg", ".pdf"),
    help="Draw a picture to this file (.png, .svg, .pdf).",
)
@json_option
def command(log: Path, log_options: LogOptions, png: Path | None, as_json: bool) -> None:
    """Show what LOG is like: the paper's Table 1 row, its fragments, its pool.

    INC/h and DEC/h: how often per hour the number of idle nodes grows and shrinks. Ratio: idle share of
    the machine's node-time. Equivalent nodes: as many that are always idle give the same. A fragment is
    one stay of one node in the pool.
    """
    from bftrainer.traces.characteristics import characterise

    found = read_log(log, log_options)
    figures = characterise(found)
    if as_json:
        print_json({"log": _about(found), **figures.as_dict()})
    else:
        _print(found, figures)
    if png is not None:  # last: the figures are printed even if drawing fails
        from bftrainer.traces.picture import draw

        draw(found, figures, png, log.name)


def _about(log: Log) -> dict[str, Any]:
    """Return how the log was read, with the number of its nodes in place of their names."""
    fields = {f.name: getattr(log, f.name) for f in dataclasses.fields(log) if f.name != "intervals"}
    return {**fields, "nodes": len(log.nodes)}


def _print(log: Log, figures: Characteristics) -> None:
    print_notes(log)
    say(
        f"{log.format}: {figures.fragments:,} fragments of {len(log.nodes):,} nodes, "
        f"{figures.cut:,} of them cut by the log's begin or end\n"
    )
    _print_rates(figures)
    print_table(
        ("fragments shorter than", "share of them", "of the node-time"),
        [(_time(s.length_s), f"{s.fragments:.1%}", f"{s.node_time:.1%}") for s in figures.shorter],
    )
    say()
    _print_percentiles(figures)
    say(
        f"\nno idle node {figures.empty_share:.1%} of the time; a fragment lasts "
        f"{_time(figures.mean_fragment_s)} on average"
    )


def _print_rates(figures: Characteristics) -> None:
    row = figures.table1
    cells = (
        f"{row.hours:,.1f}",
        f"{row.inc_per_h:.2f}",
        f"{row.dec_per_h:.2f}",
        f"{row.ratio:.1%}",
        f"{row.equivalent_nodes:,.1f}",
        f"{figures.machine_nodes:,}",
    )
    print_table(("hours", "INC/h", "DEC/h", "ratio", "equivalent nodes", "of nodes"), [cells])
    say(
        f"events in which nodes join: {figures.join_events_per_h:.2f}/h; leave: "
        f"{figures.leave_events_per_h:.2f}/h\n"
    )


def _print_percentiles(figures: Characteristics) -> None:
    by_number, by_time = figures.fragment_percentiles_s, figures.node_time_percentiles_s
    print_table(
        ("percentile", "fragment", "the same by node-time", "idle nodes, over time"),
        [
            (
                NAMES.get(percent, f"{percent} %"),
                _time(by_number[percent]),
                _time(by_time[percent]),
                f"{size:,}",
            )
            for percent, size in figures.pool_percentiles.items()
        ],
    )


def _time(seconds: float) -> str:
    for unit, name in UNITS:
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
