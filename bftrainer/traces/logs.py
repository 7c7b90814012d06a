"""Reads a log of any format: finds the format, lets its module read, checks how much is broken.

The module of a format has `recognises(line)` and `read(lines, options)`, and stands in FORMATS under the
format's name. Readers stream, also from packed files (see `packed`). Lines that a reader does not understand
are counted and shown; if their share exceeds what the options allow, the log is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from bftrainer.files import open_regular
from bftrainer.messages.files.logs import (
    MACHINE_NODES,
    NO_KNOWN_FORMAT,
    OTHER_KIND,
    OUTSIDE,
    TELLS_NOTHING,
    TOO_BROKEN,
)
from bftrainer.messages.files.places import UNREADABLE
from bftrainer.traces import recorded
from bftrainer.traces.by_gpu import intervals_of, names_of
from bftrainer.traces.formats import (
    bhosts,
    idle_intervals,
    jobcomp,
    lsb_acct,
    philly,
    sacct,
    sinfo,
    snapshots,
    swf,
)
from bftrainer.traces.formats.lines import MOST_NODES, Lines
from bftrainer.traces.formats.options import LogOptions
from bftrainer.traces.intervals import DAMAGES, Interval, LogError, first_nodes
from bftrainer.traces.packed import lines_of, unpacked

__all__ = ["FORMATS", "Log", "LogOptions", "cut", "load"]

FORMATS: dict[str, ModuleType] = {
    "intervals": idle_intervals,
    "swf": swf,
    "sacct": sacct,
    "jobcomp": jobcomp,
    "sinfo": sinfo,
    "bhosts": bhosts,
    "lsb.acct": lsb_acct,
    "snapshots": snapshots,
    "philly": philly,
}
LOOKED_AT = 50
"""Number of first lines that tell the format of a log."""
REPORT_EVERY = 1000
OTHERS = (
    (re.compile(r"[{\[]"), "JSON", "what sacct --parsable2 prints, for Slurm's jobs"),
    (re.compile(r"JobID(Raw)? +\S"), "what sacct prints in columns", "what sacct --parsable2 prints"),
    (re.compile(r"JOBID +(PARTITION|USER)"), "a list of jobs of one moment", "sacct, lsb.acct, or samples"),
    (re.compile(r"NODELIST +NODES"), "what sinfo -N prints", "what sinfo -h prints, in samples"),
    (re.compile(r"<"), "HTML or XML", "the file itself, not the page that shows it"),
)
"""Beginnings of known texts, their kind, and the file to take instead."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log of idle nodes, or of idle GPUs if the options share these out. Times are Unix seconds.

    Attributes:
        intervals: The fragments; one that is still idle at the end of the log ends at infinity.
        nodes: All names in the log, also of nodes that never were idle.
        machine_nodes: Nodes of the machine: as the options say, else as many as the log names.
        format: A name of FORMATS.
        lines: Number of lines, without blank ones.
        broken: Number of lines that were not understood and left out.
        examples: The first of these: `line 7: ...`.
        notes: Remarks on the log that matter to its figures.
        begin, end: The span that the log covers.
    """

    intervals: list[Interval]
    nodes: frozenset[str]
    machine_nodes: int
    format: str
    lines: int
    broken: int
    examples: tuple[str, ...]
    notes: tuple[str, ...]
    begin: float
    end: float


def load(
    path: Path, options: LogOptions | None = None, progress: Callable[[float], None] = lambda done: None
) -> Log:
    """Read a log of any format, or the folder of a recorded series; `progress` takes the share read, 0 to 1.

    Raises:
        LogError: unreadable, of no known format, without content, or too much of it is broken.
    """
    options = options or LogOptions()
    try:
        with closing(_source(path, progress)) as source:
            head = list(islice(source, LOOKED_AT))
            if len(head) < LOOKED_AT and not any(map(str.strip, head)):
                raise LogError(TELLS_NOTHING.say(why="the file is empty"))
            name = options.format or detect(head)
            lines = Lines(chain(head, source))
            try:
                found = FORMATS[name].read(lines, options)
            finally:  # that too much is broken explains whatever else is wrong
                _check(lines, options.max_broken)
            names = names_of(options.share, found.nodes, options.gpus_per_node)
            every = intervals_of(options.share, found.intervals, found.nodes, options.gpus_per_node)
            intervals = [i for i in every if i.end > i.start and i.end - i.start >= options.min_gap_s]
        given, each = options.machine_nodes, options.gpus_per_node if options.share == "gpu" else 1
        machine = _machine(given and given * each, len(names))
    except LogError as error:
        raise LogError(f"{path}{'' if str(error).startswith(':') else ': '}{error}") from None
    except DAMAGES as error:
        raise LogError(UNREADABLE.say(path=path, why=error)) from error
    return Log(
        intervals=intervals,
        nodes=names,
        machine_nodes=machine,
        format=name,
        lines=lines.seen,
        broken=lines.broken,
        examples=tuple(f"line {number}: {why}" for number, why in lines.examples),
        notes=found.notes,
        begin=found.begin,
        end=found.end,
    )


def _source(path: Path, progress: Callable[[float], None]) -> Generator[str, None, None]:
    """The lines of a file, or of all files of a recorded series."""
    parts = recorded.files(path) if path.is_dir() else [path]
    for number, part in enumerate(parts):
        with open_regular(part) as raw, unpacked(raw, errors="replace") as file:
            size = os.fstat(raw.fileno()).st_size or 1

            def report(number: int = number, raw: BinaryIO = raw, size: int = size) -> None:
                progress((number + min(1.0, raw.tell() / size)) / len(parts))

            yield from _watched(lines_of(file), report)


def cut(log: Log, begin: float | None, hours: float | None, nodes: int | None) -> Log:
    """The same log from `begin` (Unix seconds) for `hours`, of the first `nodes` names that are ever idle.

    None takes all. Intervals are cut at both ends; `nodes` sets the machine's size.

    Raises:
        LogError: the span lies outside of the log, or it has fewer nodes.
    """
    start = log.begin if begin is None else begin
    end = log.end if hours is None else start + hours * 3600
    if not log.begin <= start < log.end or end > log.end:
        last = "" if hours is None else f" --hours {hours:g}"
        raise LogError(outside(log, f"--from {iso(start)}{last}"))
    names = log.nodes if nodes is None else first_nodes(log.intervals, nodes)
    return replace(
        log,
        intervals=[
            Interval(max(i.start, start), i.end if i.end <= end else float("inf"), i.node)
            for i in log.intervals
            if i.node in names and i.start < end and i.end > start
        ],
        nodes=names,
        machine_nodes=log.machine_nodes if nodes is None else nodes,
        begin=start,
        end=end,
    )


def outside(log: Log, asked: str) -> str:
    """Message where `asked` is beyond a log's span."""
    hours = (log.end - log.begin) / 3600
    return OUTSIDE.say(asked=asked, begin=iso(log.begin), end=iso(log.end), hours=hours)


def iso(moment: float) -> str:
    """Unix seconds as date and time in UTC; as they are, where no calendar has the year."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{moment:g} s"


def detect(head: Iterable[str]) -> str:
    """The name of the first format that recognises one of a log's first lines.

    Raises:
        LogError: none does.
    """
    first = ""
    for line in head:
        first = first or line.strip()
        for name, reader in FORMATS.items():
            if reader.recognises(line.rstrip()):
                return name
    for known, what, instead in OTHERS:
        if known.match(first):
            raise LogError(OTHER_KIND.say(what=what, instead=instead))
    raise LogError(NO_KNOWN_FORMAT.say(formats=", ".join(FORMATS)))


def _watched(file: Iterable[str], report: Callable[[], None]) -> Iterator[str]:
    for number, line in enumerate(file):
        if number % REPORT_EVERY == 0:
            report()
        yield line


def _check(lines: Lines, bound: float) -> None:
    if lines.broken <= bound * lines.seen:
        return
    examples = "\n".join(f":{number}: {why}" for number, why in lines.examples)
    share = lines.broken / lines.seen
    said = TOO_BROKEN.say(broken=lines.broken, seen=lines.seen, share=share, bound=bound)
    raise LogError(f"{examples}\n{said}")


def _machine(given: int | None, named: int) -> int:
    if given is not None and given < named:
        why = f"the log names {named:,}"
        raise LogError(MACHINE_NODES.say(given=given, why=why, least=named, most=MOST_NODES))
    return given or named
