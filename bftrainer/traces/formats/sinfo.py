"""Periodic dumps of `sinfo`, as a shell loop writes them:

    1647471604                                         Unix time of the sample
    invokers: p2165,p1739                              nodes that a harvester's pilots hold (may be absent)
    lowprio      up   12:00:00      1   idle p0016     lines of sinfo: partition, ..., state, node list
    ----                                               end of the sample

A node is in the pool if its state is exactly `idle`, or if a pilot holds it: `idle~` (powered down),
`idle#` (powering up), `idle%` (powering down) and `idle*` (not responding) cannot be used. A stay ends
with the first sample that lacks the node. A sample with a broken line is skipped as a whole, and the state
before it continues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from bftrainer.traces.formats.lines import BrokenLineError, Found, Lines, counted, node_names, shown
from bftrainer.traces.formats.options import LogOptions
from bftrainer.traces.intervals import Interval, LogError

TIME = re.compile(r"\d{9,11}(\.\d+)?")
HELD = "invokers:"
END = "----"
HEADER = "PARTITION"
GAP = 10
"""Samples further apart than this many times their median distance are worth a note."""

Sample = tuple[float, frozenset[str], frozenset[str]]
"""Time (Unix seconds), nodes in the pool, all nodes that it names."""


def recognises(line: str) -> bool:
    """Whether this is a sample's time or the list of held nodes."""
    return TIME.fullmatch(line) is not None or line.startswith(HELD)


def read(lines: Lines, options: LogOptions) -> Found:
    """The stays in the pool from the first sample to the last.

    Raises:
        LogError: there is no whole sample.
    """
    since: dict[str, float] = {}
    nodes: set[str] = set()
    intervals: list[Interval] = []
    times: list[float] = []
    for time, pool, named in samples(lines):
        gone = since.keys() - pool
        intervals += [Interval(since.pop(node), time, node) for node in sorted(gone)]
        since.update(dict.fromkeys(sorted(pool - since.keys()), time))
        nodes |= named
        times.append(time)
    if not times:
        raise LogError("no whole sample: each is a Unix time, lines of sinfo and ----")
    intervals += [Interval(start, float("inf"), node) for node, start in since.items()]
    return Found(intervals, frozenset(nodes), times[0], times[-1], tuple(_notes(times)))


def samples(lines: Lines) -> Iterator[Sample]:
    """The complete samples in order of time; `lines` counts the broken lines of the others."""
    time: float | None = None
    last = float("-inf")
    pool: set[str] = set()
    named: set[str] = set()
    for line in lines:
        try:
            if TIME.fullmatch(line):
                if time is not None:
                    lines.refuse(f"the sample before {line} has no end ({END})")
                time, pool, named = None, set(), set()
                if float(line) <= last:
                    raise BrokenLineError(f"{line} is not after the sample before it, {last:.0f}")
                time = float(line)
            elif line == END:
                if time is not None:
                    last = time
                    yield time, frozenset(pool), frozenset(named)
                time = None
            elif time is not None:
                usable, known = _line(line)
                pool.update(usable)
                named.update(known)
        except BrokenLineError as error:
            lines.refuse(error)
            time = None
    if time is not None:
        lines.refuse(f"the last sample has no end ({END})")


def _line(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The nodes that are in the pool according to a line, and all nodes that it names."""
    if line.startswith(HELD):
        held = line.removeprefix(HELD).strip()
        names = node_names(held) if held else ()
        return names, names
    cells = line.split()
    if cells[0] == HEADER:
        return (), ()
    if len(cells) != 6:
        raise BrokenLineError(
            f"{shown(line)} is no line of sinfo: partition, availability, limit, nodes, state, node list"
        )
    names = node_names(cells[5])
    return (names if cells[4] == "idle" else ()), names


def _notes(times: list[float]) -> Iterator[str]:
    yield counted(len(times), "sample", "samples")
    steps = [b - a for a, b in pairwise(times)]
    if steps and max(steps) > GAP * median(steps):
        yield (
            f"samples are {median(steps):g} s apart, once {max(steps):g} s: what was in the pool before "
            "counts as in it all that time"
        )
