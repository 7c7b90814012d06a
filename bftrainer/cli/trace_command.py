"""bftrainer trace"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.shared.log_options import log_options
from bftrainer.cli.shared.options import json_option
from bftrainer.cli.shared.progress import progress_bar
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.types import Output, Positive, parse_utc
from bftrainer.traces.formats.lines import counted
from bftrainer.traces.logs import LogOptions

if TYPE_CHECKING:
    from bftrainer.traces.characteristics import Characteristics
    from bftrainer.traces.logs import Log

PROFILES = ("summit", "theta", "small")
NAMES = {0: "least", 50: "median", 100: "most"}
UNITS = ((86400, "d"), (3600, "h"), (60, "min"))

log_argument = click.argument("log", type=click.Path(path_type=Path, exists=True, dir_okay=False))
nodes_option = click.option("--nodes", type=click.IntRange(min=1), help="Take the first N node names.")


@click.group("trace")
def command() -> None:
    """Look at logs of idle nodes, convert them, and generate some.

    Formats: idle intervals (CSV), SWF, sacct --parsable2, jobcomp/filetxt, periodic sinfo dumps; each
    plain, .gz or .xz.
    """


@command.command("info")
@log_argument
@log_options
@click.option(
    "--png",
    type=Output(".png", ".svg", ".pdf"),
    help="Draw a picture to this file (.png, .svg, .pdf).",
)
@json_option
def info(log: Path, log_options: LogOptions, png: Path | None, as_json: bool) -> None:
    """Show what LOG is like: the paper's Table 1 row, its fragments, its pool.

    INC/h and DEC/h: how often per hour the number of idle nodes grows and shrinks. Ratio: idle share of
    the machine's node-time. Equivalent nodes: so many idle all the time would be as much. A fragment is
    one stay of one node in the pool.
    """
    from bftrainer.traces.characteristics import characterise

    found = _load(log, log_options)
    figures = characterise(found)
    if as_json:
        print_json({"log": _about(found), **figures.as_dict()})
    else:
        _show(found, figures)
    if png is not None:  # last: the figures are there, whatever comes of it
        from bftrainer.traces.picture import draw

        draw(found, figures, png, log.name)


@command.command("convert")
@log_argument
@click.argument("out", type=Output())
@log_options
@click.option("--from", "begin", metavar="ISO", help="Where to begin, UTC.  [default: the log's begin]")
@click.option("--hours", type=Positive(), help="How long.  [default: to the log's end]")
@nodes_option
def convert(
    log: Path, out: Path, log_options: LogOptions, begin: str | None, hours: float | None, nodes: int | None
) -> None:
    """Write LOG as a CSV of idle intervals to OUT, packed if that ends in .gz or .xz.

    What is still idle at the end ends there. OUT appears when it is complete.
    """
    from bftrainer.traces.intervals import write
    from bftrainer.traces.logs import cut

    found = cut(_load(log, log_options), parse_utc(begin), hours, nodes)
    _warn(found)
    with progress_bar("write") as progress:
        write(out, found.intervals, found.end, progress)
    click.echo(
        f"{out}: {counted(len(found.intervals), 'interval', 'intervals')} of "
        f"{counted(len(found.nodes), 'node', 'nodes')}",
        err=True,
    )


@command.command("synth")
@click.argument("out", type=Output())
@click.option("--profile", type=click.Choice(PROFILES), required=True, help="What machine it is to be like.")
@click.option("--nodes", type=click.IntRange(1, 1_000_000), help="Nodes.  [default: the machine's own]")
@click.option("--hours", type=Positive(most=1e6), default=168.0, show_default=True, help="How long.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Another seed, another log."
)
def synth(out: Path, profile: str, nodes: int | None, hours: float, seed: int) -> None:
    """Generate a log like a real machine's and write it as a CSV of idle intervals to OUT.

    summit: the published week of Summit (2021, 4,734 nodes). theta: 2022 of Theta (4,360 nodes). small:
    KTH's SP2 (1996, 100 nodes). For other numbers of nodes the rates are in proportion. It begins at
    time 0; .gz and .xz are packed.
    """
    from bftrainer.traces.intervals import write
    from bftrainer.traces.synthetic.generate import generate
    from bftrainer.traces.synthetic.profiles import PROFILES as FITTED

    fitted = FITTED[profile]
    with progress_bar("generate") as progress:
        made = generate(fitted, nodes or fitted.nodes, hours, seed, progress)
    with progress_bar("write") as progress:
        write(out, made, hours * 3600, progress)
    click.echo(f"{out}: {counted(len(made), 'interval', 'intervals')}", err=True)


def _load(path: Path, options: LogOptions) -> Log:
    from bftrainer.traces.logs import load

    with progress_bar("read") as progress:
        return load(path, options, progress)


def _about(log: Log) -> dict[str, Any]:
    """All about how the log was read; of the many intervals and names only how many there are."""
    fields = {f.name: getattr(log, f.name) for f in dataclasses.fields(log) if f.name != "intervals"}
    return {**fields, "nodes": len(log.nodes)}


def _warn(log: Log) -> None:
    for note in log.notes:
        click.echo(f"note: {note}", err=True)
    if log.broken:
        click.echo(f"note: {log.broken:,} of {log.lines:,} lines left out, not understood:", err=True)
        for example in log.examples:
            click.echo(f"  {example}", err=True)


def _show(log: Log, figures: Characteristics) -> None:
    row = figures.table1
    _warn(log)
    click.echo(
        f"{log.format}: {figures.fragments:,} fragments of {len(log.nodes):,} nodes, "
        f"{figures.cut:,} of them cut by the log's begin or end\n"
    )
    print_table(
        ("hours", "INC/h", "DEC/h", "ratio", "equivalent nodes", "of nodes"),
        [
            (
                f"{row.hours:,.1f}",
                f"{row.inc_per_h:.2f}",
                f"{row.dec_per_h:.2f}",
                f"{row.ratio:.1%}",
                f"{row.equivalent_nodes:,.1f}",
                f"{figures.machine_nodes:,}",
            )
        ],
    )
    click.echo(
        f"events in which nodes join: {figures.join_events_per_h:.2f}/h; leave: "
        f"{figures.leave_events_per_h:.2f}/h\n"
    )
    print_table(
        ("fragments shorter than", "share of them", "of the node-time"),
        [(_time(s.length_s), f"{s.fragments:.1%}", f"{s.node_time:.1%}") for s in figures.shorter],
    )
    click.echo()
    print_table(
        ("percentile", "fragment", "the same by node-time", "idle nodes, over time"),
        [
            (
                NAMES.get(percent, f"{percent} %"),
                *(
                    _time(of[percent])
                    for of in (figures.fragment_percentiles_s, figures.node_time_percentiles_s)
                ),
                f"{size:,}",
            )
            for percent, size in figures.pool_percentiles.items()
        ],
    )
    click.echo(
        f"\nno idle node {figures.empty_share:.1%} of the time; a fragment lasts "
        f"{_time(figures.mean_fragment_s)} on average"
    )


def _time(seconds: float) -> str:
    for unit, name in UNITS:
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
