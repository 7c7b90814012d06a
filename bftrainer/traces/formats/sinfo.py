"""Periodic dumps of `sinfo`, in samples as `dumps` has them:

    1647471604                                         Unix time of the sample
    invokers: p2165,p1739                              nodes that a harvester's pilots hold (may be absent)
    lowprio      up   12:00:00      1   idle p0016     lines of sinfo: partition, ..., state, node list
    ----                                               end of the sample

A node is in the pool if its state is exactly `idle`, or if a pilot holds it: `idle~` (powered down),
`idle#` (powering up), `idle%` (powering down) and `idle*` (not responding) cannot be used. A partition
without nodes (`gpu up infinite 0 n/a`) names none.
"""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer.traces.formats import dumps
from bftrainer.traces.formats.lines import BrokenLineError, Lines, ReadIntervals, node_names, shown
from bftrainer.traces.formats.options import LogOptions

HELD = "invokers:"
HEADER = "PARTITION"
AVAILABILITY = frozenset({"up", "down", "drain", "inact"})


def recognises(line: str) -> bool:
    """True if this is the list of held nodes, a line of sinfo, or the end of a sample in which nothing is
    idle."""
    cells = line.split()
    return (
        line.startswith(HELD)
        or line == dumps.END
        or cells[:1] == [HEADER]
        or (len(cells) == 6 and cells[1] in AVAILABILITY)
        or _is_empty(cells)
    )


def _is_empty(cells: list[str]) -> bool:
    """True if these are the cells of a partition that has no nodes."""
    return len(cells) in (5, 6) and cells[1] in AVAILABILITY and cells[3] == "0"


def read(lines: Lines, options: LogOptions) -> ReadIntervals:
    """The stays in the pool from the first sample to the last.

    Raises:
        LogError: there is no whole sample.
    """
    return dumps.found(samples(lines), "sinfo")


def samples(lines: Lines) -> Iterator[dumps.Sample]:
    """The complete samples in order of time; `lines` counts the broken lines of the others."""
    return dumps.samples(lines, lambda: _line, empty=True)  # those of `sinfo | grep idle`


def _line(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The nodes that are in the pool according to a line, and all nodes that it names."""
    if line.startswith(HELD):
        held = line.removeprefix(HELD).strip()
        names = node_names(held) if held else ()
        return names, names
    cells = line.split()
    if cells[0] == HEADER or _is_empty(cells):
        return (), ()
    if len(cells) != 6:
        raise BrokenLineError(
            f"{shown(line)} is no line of sinfo: partition, availability, limit, nodes, state, node list"
        )
    names = node_names(cells[5])
    return (names if cells[4] == "idle" else ()), names
