"""Periodic dumps of what a batch system prints of nodes, as a shell loop writes them: the frame of a sample.

    1647471604                                         Unix time of the sample
    ...                                                what was printed
    ----                                               end of the sample

A stay in the pool ends with the first sample that lacks the node. A sample with a broken line is skipped as a
whole, and the state before it continues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from statistics import median

from bftrainer.messages.files.logs import TELLS_NOTHING
from bftrainer.model.text import counted
from bftrainer.traces.formats.lines import BrokenLineError, Lines, ReadIntervals
from bftrainer.traces.intervals import Interval, LogError

TIME = re.compile(r"\d{9,11}(\.\d+)?")
END = "----"
GAP = 10
"""Samples further apart than this many times their median distance are worth a note."""

Sample = tuple[float, frozenset[str], frozenset[str]]
"""Time (Unix seconds), nodes in the pool, all nodes that it names."""
Parse = Callable[[str], tuple[Collection[str], Collection[str]]]
"""The nodes that are in the pool according to a line, and all nodes that it names."""


def samples(lines: Lines, begun: Callable[[], Parse], *, empty: bool = False) -> Iterator[Sample]:
    """The complete samples in order of time; `lines` counts the broken lines of the others. `begun` returns
    what reads the lines of one sample; `empty`: one that names no node is whole, too."""
    time: float | None = None
    last = float("-inf")
    pool: set[str] = set()
    named: set[str] = set()
    parse = begun()
    for line in lines:
        try:
            if TIME.fullmatch(line):
                if time is not None:
                    lines.refuse(f"the sample before {line} has no end ({END})")
                time, pool, named, parse = None, set(), set(), begun()
                if float(line) <= last:
                    raise BrokenLineError(f"{line} is not after the sample before it, {last:.0f}")
                time = float(line)
            elif line == END:
                if time is not None and not (named or empty):
                    raise BrokenLineError("the sample names no node: the batch system did not answer")
                if time is not None:
                    last = time
                    yield time, frozenset(pool), frozenset(named)
                time = None
            elif time is not None:
                usable, known = parse(line)
                pool.update(usable)
                named.update(known)
        except BrokenLineError as error:
            lines.refuse(error)
            time = None
    if time is not None:
        lines.refuse(f"the last sample has no end ({END})")


def found(taken: Iterable[Sample], command: str) -> ReadIntervals:
    """The stays in the pool from the first sample of a command's outputs to the last.

    Raises:
        LogError: there is no whole sample.
    """
    since: dict[str, float] = {}
    nodes: set[str] = set()
    intervals: list[Interval] = []
    times: list[float] = []
    for time, pool, named in taken:
        gone = since.keys() - pool
        intervals += [Interval(since.pop(node), time, node) for node in sorted(gone)]
        since.update(dict.fromkeys(sorted(pool - since.keys()), time))
        nodes |= named
        times.append(time)
    if not times:
        why = f"it has no whole sample, which is a Unix time, lines of {command} and {END}"
        raise LogError(TELLS_NOTHING.say(why=why))
    intervals += [Interval(start, float("inf"), node) for node, start in since.items()]
    return ReadIntervals(intervals, frozenset(nodes), times[0], times[-1], tuple(_notes(times)))


def _notes(times: list[float]) -> Iterator[str]:
    yield counted(len(times), "sample")
    steps = [b - a for a, b in pairwise(times)]
    if steps and max(steps) > GAP * median(steps):
        yield (
            f"samples are {median(steps):g} s apart, once {max(steps):g} s: what was in the pool before "
            "counts as in it all that time"
        )
