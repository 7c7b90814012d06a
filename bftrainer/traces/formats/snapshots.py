"""Snapshots of a machine, as `bftrainer record` writes them: a header and then one JSON object a line.

    {"bftrainer_record": 1, "scheduler": "slurm", "version": "0.2.0", "poll_s": 10.0}
    {"time": "2026-11-23T04:20:00.125+01:00", "idle": "n[1-3]", "busy": {"job": "n[4-7]", "down": "n8"},
     "until": [["2026-11-23T05:00:00.000+01:00", "n3"]], "waiting": 12}             (on one line)
    {"time": "2026-11-23T04:20:10.131+01:00", "same": true, "waiting": 11}    as the snapshot before
    {"time": "2026-11-23T04:20:20.127+01:00", "failed": true}                 the batch system did not answer

Times name their zone. `until` says when idle nodes are expected to be taken; `waiting` counts main jobs. What
the batch system itself sums up are `totals`, such as {"used": 4544, "nodes": 4604, "running": 2}; they stand
where they have changed. Each file begins with a header and a full snapshot, so that it can be read by itself;
other keys are ignored. A snapshot that says "same" after one that cannot be read is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bftrainer.messages.files.logs import RECORD_VERSION, TELLS_NOTHING
from bftrainer.model.text import counted
from bftrainer.traces.formats.lines import (
    PIECE,
    BrokenLineError,
    Lines,
    ReadIntervals,
    moment,
    node_names,
    shown,
)
from bftrainer.traces.formats.options import LogOptions
from bftrainer.traces.formats.totals import SeriesTotals
from bftrainer.traces.intervals import Interval, LogError

MARK = "bftrainer_record"
VERSION = 1
GAP_S = 300.0
"""Without a snapshot for longer, and for longer than `GAP_POLLS` polls, nobody knows what was idle."""
GAP_POLLS = 5


def recognises(line: str) -> bool:
    """True if this is the header of such a file."""
    return line.startswith(f'{{"{MARK}"')


@dataclass
class _Series:
    """The lines read so far. `pool` None: the state of the machine is not known since a broken line."""

    intervals: list[Interval] = field(default_factory=list)
    since: dict[str, float] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    pool: frozenset[str] | None = None
    begin: float | None = None
    last: float = float("-inf")
    poll_s: float = 10.0
    snapshots: int = 0
    failed: int = 0
    missing_s: float = 0.0
    idle_s: float = 0.0  # node-seconds
    totals: SeriesTotals = field(default_factory=SeriesTotals)

    def header(self, found: dict[str, Any]) -> None:
        """Take over what a header says.

        Raises:
            LogError: it is of a version that is not known.
        """
        if found[MARK] != VERSION:
            raise LogError(RECORD_VERSION.say(given=found[MARK], known=VERSION))
        poll_s = found.get("poll_s")
        self.poll_s = float(poll_s) if isinstance(poll_s, int | float) and 0 < poll_s < 1e6 else self.poll_s
        self.pool = None  # a file has its own full snapshot
        self.totals.now = None

    def snapshot(self, time: float, found: dict[str, Any]) -> None:
        """Take over a snapshot.

        Raises:
            BrokenLineError: it names no nodes as it should.
        """
        if found.get("same") is True:
            if self.pool is None:
                return
        else:
            idle, busy = _names(found.get("idle")), found.get("busy")
            if not isinstance(busy, dict):
                raise BrokenLineError("a snapshot has `busy`, what is not idle and why")
            named = {*idle}.union(*map(_names, busy.values()))
            self.pool = frozenset(idle)
            self.nodes |= named
        self._to(time, self.pool)
        self.totals.take(found)

    def _to(self, time: float, pool: frozenset[str]) -> None:
        if self.begin is None:
            self.begin = self.last = time
        if time - self.last > max(GAP_S, GAP_POLLS * self.poll_s):
            self.missing_s += time - self.last
            self._leave(set(self.since), self.last)
        else:
            self.idle_s += len(self.since) * (time - self.last)
            self.totals.last(time - self.last)
        self._leave(self.since.keys() - pool, time)
        self.since.update(dict.fromkeys(sorted(pool - self.since.keys()), time))
        self.last = time
        self.snapshots += 1

    def _leave(self, gone: set[str], time: float) -> None:
        self.intervals += [Interval(self.since.pop(node), time, node) for node in sorted(gone)]


def read(lines: Lines, options: LogOptions) -> ReadIntervals:
    """The stays in the pool from the first snapshot to the last.

    Raises:
        LogError: there is no snapshot, or the version is not known.
    """
    series = _Series()
    cut_off: tuple[BrokenLineError, int] | None = None  # perhaps the last line of a recorder that was killed
    unfinished = 0
    for text in lines:
        begins = recognises(text)
        if cut_off is not None:
            unfinished += begins
            if not begins:
                lines.refuse(*cut_off)
            cut_off = None
        try:
            _take(series, _parsed(text))
        except BrokenLineError as error:
            series.pool = None
            if isinstance(error, _NoJsonError):
                cut_off = error, lines.number
            else:
                lines.refuse(error)
    unfinished += cut_off is not None
    if series.begin is None:
        raise LogError(TELLS_NOTHING.say(why="the recorder has not come to write a snapshot"))
    open_ = [Interval(start, float("inf"), node) for node, start in series.since.items()]
    return ReadIntervals(
        [*series.intervals, *open_],
        frozenset(series.nodes),
        series.begin,
        series.last,
        tuple(_notes(series, unfinished)),
    )


class _NoJsonError(BrokenLineError):
    """A line that is no JSON: cut off in the middle, or something else altogether."""


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _NoJsonError(f"{shown(text)} is no JSON") from None
    if not isinstance(found, dict):
        raise BrokenLineError(f"{shown(text)} is no snapshot; expected {{...}}")
    return found


def _take(series: _Series, found: dict[str, Any]) -> None:
    """Take over what a line says.

    Raises:
        BrokenLineError: not a snapshot, or is not after the one before.
        LogError: its version is not known.
    """
    if MARK in found:
        series.header(found)
        return
    at = found.get("time")
    time = moment(at) if isinstance(at, str) else None
    if time is None:
        raise BrokenLineError(f"{at!r:.60} is no time; expected one with its zone, 2026-11-23T04:20:00+01:00")
    if time <= series.last:
        raise BrokenLineError(f"{at} is not after the snapshot before it")
    if found.get("failed"):
        series.failed += 1
    else:
        series.snapshot(time, found)


def _names(text: object) -> list[str]:
    """The nodes of a list with ranges; its words are read one by one, as they recur in many snapshots."""
    if not isinstance(text, str):
        raise BrokenLineError(f"{text!r:.60} is no node list")
    return [name for piece in PIECE.findall(text) for name in node_names(piece)]


def _notes(series: _Series, unfinished: int) -> Iterator[str]:
    yield counted(series.snapshots, "snapshot")
    if series.failed:
        yield counted(series.failed, "poll") + " without an answer: the state before continues"
    if series.missing_s:
        yield (
            f"{series.missing_s / 3600:.1f} h of {(series.last - (series.begin or 0.0)) / 3600:.1f} h were "
            "not recorded: nothing counts as idle then, so that figures over time are lower bounds"
        )
    yield from series.totals.notes(series.idle_s, series.last - (series.begin or 0.0) - series.missing_s)
    if unfinished:
        yield counted(unfinished, "line is", "lines are") + " cut off: the recorder was killed there"
