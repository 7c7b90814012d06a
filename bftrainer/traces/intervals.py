"""Idle intervals: when the main scheduler left which node idle, and the changes of the pool that follow.

`logs.load` reads them from many formats; `write` writes the CSV `idle_start,idle_end,node` in Unix seconds.
"""

from __future__ import annotations

import csv
import gzip
import lzma
import zipfile
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.logs import FEWER_NODES
from bftrainer.messages.files.places import UNWRITABLE
from bftrainer.model.events import NodesChanged
from bftrainer.traces.whole_file import whole_file

DAMAGES = (
    OSError,
    lzma.LZMAError,
    zlib.error,
    zipfile.BadZipFile,
    EOFError,
    UnicodeDecodeError,
    csv.Error,
)
"""Errors of reading a file that is damaged, truncated or not text."""
COLUMNS = ("idle_start", "idle_end", "node")


class LogError(BftrainerError, ValueError):
    """A log that cannot be read. The message names file, line, value and what is expected."""


class Interval(NamedTuple):
    """One fragment: `node` is idle from `start` until just before `end` (Unix seconds).

    A tuple, as a log may have ten million of them.
    """

    start: float
    end: float
    node: str


def write(
    path: Path,
    intervals: Sequence[Interval],
    end: float,
    progress: Callable[[float], None] = lambda done: None,
) -> None:
    """Write intervals as a CSV, compressed by the suffix (.gz, .xz); ends after `end` become `end`.

    The file appears when it is complete, in place of one that was there. `progress` takes the share
    done, 0 to 1.

    Raises:
        LogError: it cannot be written.
    """
    try:
        with whole_file(path) as draft, draft.open("wb") as raw, _packed(raw, path.suffix) as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(COLUMNS)
            for number, (start, until, node) in enumerate(intervals):
                if number % 100_000 == 0:
                    progress(number / len(intervals))
                rows.writerow((f"{start:.15g}", f"{min(until, end):.15g}", node))
    except OSError as error:
        raise LogError(UNWRITABLE.say(path=path, why=error.strerror or error)) from error


def _packed(raw: BinaryIO, suffix: str) -> TextIO:
    """A text file that writes into `raw`, compressed as a file name's suffix says."""
    if suffix == ".gz":
        return TextIOWrapper(gzip.open(raw, "wb", compresslevel=6), encoding="utf-8")
    if suffix == ".xz":
        return TextIOWrapper(lzma.open(raw, "wb", preset=2), encoding="utf-8")
    return TextIOWrapper(raw, encoding="utf-8")


def first_nodes(intervals: Iterable[Interval], n: int | None) -> frozenset[str]:
    """The first `n` names in sorted order of those that occur; all of them for None.

    Raises:
        LogError: the log has fewer nodes.
    """
    names = sorted({interval.node for interval in intervals})
    if n is not None and n > len(names):
        raise LogError(FEWER_NODES.say(asked=n, there=len(names)))
    return frozenset(names[:n])


def changes(
    intervals: Iterable[Interval], nodes: frozenset[str], begin: float, end: float
) -> list[NodesChanged]:
    """The changes of the pool of `nodes` in [begin, end), in order of time, one event per moment.

    The first event is always at `begin`; with it the nodes join that are idle then.
    """
    own: dict[str, list[Interval]] = defaultdict(list)
    for interval in intervals:
        if interval.node in nodes and begin < interval.end > interval.start < end:
            own[interval.node].append(interval)
    joins: dict[float, set[str]] = defaultdict(set)
    leaves: dict[float, set[str]] = defaultdict(set)
    for node, found in own.items():
        for start, stop in _united(found):
            joins[max(start, begin)].add(node)
            if stop < end:
                leaves[stop].add(node)
    times = sorted({begin} | joins.keys() | leaves.keys())
    return [
        NodesChanged(time=t, left=frozenset(leaves[t]), joined=frozenset(joins[t]), reason="log")
        for t in times
    ]


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """Each node's overlapping intervals as one, in order of their start."""
    own: dict[str, list[Interval]] = defaultdict(list)
    for interval in intervals:
        own[interval.node].append(interval)
    return sorted(Interval(start, end, node) for node, found in own.items() for start, end in _united(found))


def _united(intervals: list[Interval]) -> Iterator[tuple[float, float]]:
    """One node's intervals in order, overlapping ones as one."""
    ordered = sorted(intervals, key=lambda interval: interval.start)
    start, stop = ordered[0].start, ordered[0].end
    for interval in ordered[1:]:
        if interval.start < stop:
            stop = max(stop, interval.end)
        else:
            yield start, stop
            start, stop = interval.start, interval.end
    yield start, stop


def liveliest(intervals: Iterable[Interval], nodes: frozenset[str], span_s: float, least_s: float) -> float:
    """The best place for a demonstration: the begin of the `span_s` seconds in which most long fragments of
    `nodes` begin, which last `least_s` or longer. The begin of the first fragment if there is no long one.
    """
    own = [i for i in intervals if i.node in nodes]
    starts = sorted(i.start for i in own if i.end - i.start >= least_s)
    if not starts:
        return min(i.start for i in own)
    return max(starts, key=lambda t: (bisect_left(starts, t + span_s) - bisect_left(starts, t), -t))
