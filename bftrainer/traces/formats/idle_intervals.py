"""Idle intervals: a CSV with the columns idle_start, idle_end, node, found by their names.

Times are Unix seconds; an empty end means that the node is idle to the end of the log. Other columns are
ignored.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from bftrainer.messages.files.logs import LACKS_COLUMNS, TELLS_NOTHING
from bftrainer.model.text import counted
from bftrainer.traces.formats.lines import BrokenLineError, Lines, ReadIntervals, shown
from bftrainer.traces.formats.options import LogOptions
from bftrainer.traces.intervals import COLUMNS, Interval, LogError, united


def recognises(line: str) -> bool:
    """True if this is the header of such a log."""
    return set(COLUMNS) <= set(_cells(line))


def read(lines: Lines, options: LogOptions) -> ReadIntervals:
    """The intervals in the log's order.

    Raises:
        LogError: the header lacks a column, or there is no interval.
    """
    header = _cells(next(iter(lines), ""))
    try:
        start, end, node = (header.index(column) for column in COLUMNS)
    except ValueError:
        said = LACKS_COLUMNS.say(found=header, kind="a list of idle times", needed=", ".join(COLUMNS), how="")
        raise LogError(f":1: {said}") from None

    def parse(line: str) -> Interval:
        row = _cells(line)
        try:
            begin, until = float(row[start]), float(row[end]) if row[end] else float("inf")
            name = row[node]
        except (ValueError, IndexError):
            raise BrokenLineError(
                f"{shown(line)} is no interval; expected start and end in Unix seconds (end may be empty) "
                "and a node name"
            ) from None
        if not float("-inf") < begin <= until or begin == float("inf") or not name:
            raise BrokenLineError(f"{shown(line)}: the end is before the start, or no node")
        return Interval(begin, until, name)

    return found(lines.each(parse))


def found(intervals: Iterator[Interval]) -> ReadIntervals:
    """A log that consists of its intervals: it spans from the first start to the last start or end.

    Raises:
        LogError: there is none.
    """
    kept: list[Interval] = []
    ends: dict[str, float] = {}
    overlapping = 0
    for interval in intervals:
        kept.append(interval)
        overlapping += interval.start < ends.get(interval.node, float("-inf"))
        ends[interval.node] = interval.end
    if not kept:
        raise LogError(TELLS_NOTHING.say(why="it has no intervals"))
    notes: tuple[str, ...] = ()
    if overlapping:  # or out of order
        before, kept = len(kept), united(kept)
        if before > len(kept):
            notes = (
                counted(before - len(kept), "interval overlaps", "intervals overlap")
                + " another of the same node; united",
            )
    last = max(i.end if i.end < float("inf") else i.start for i in kept)
    return ReadIntervals(kept, frozenset(ends), min(i.start for i in kept), last, notes)


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []
