"""Readers of scheduler logs, one module a format.

A module has `recognises(line)` and `read(lines, options)`, and its name in FORMATS. Logs are read as
they stream from a plain, gzip or xz file. Lines that cannot be understood are counted and shown; above
a share that the options set, the log is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import TextIO

from bftrainer.replay.intervals import UNREADABLE, Interval, LogError, open_text
from bftrainer.replay.logs import idle_intervals, jobcomp, sacct, sinfo, swf
from bftrainer.replay.logs.lines import Lines
from bftrainer.replay.logs.options import LogOptions

FORMATS: dict[str, ModuleType] = {
    "intervals": idle_intervals,
    "swf": swf,
    "sacct": sacct,
    "jobcomp": jobcomp,
    "sinfo": sinfo,
}
LOOKED_AT = 50
"""So many lines at the beginning tell a log's format."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log of idle nodes. Times are Unix seconds.

    Attributes:
        intervals: The fragments; one that is still idle at the end of the log ends at infinity.
        nodes: All names in the log, also of nodes that never were idle.
        machine_nodes: Nodes of the machine: as given, else as many as have names.
        format: A name of FORMATS.
        lines: Lines read, blank ones aside.
        broken: How many of them could not be understood, and were left out.
        examples: The first of these: `line 7: ...`.
        notes: What else a reader of the log's figures should know.
        begin, end: The span that the log tells about.
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
    """Read a log of any format; `progress` takes the share read, 0 to 1.

    Raises:
        LogError: unreadable, of no known format, without content, or too much of it is broken.
    """
    options = options or LogOptions()
    try:
        with open_text(path, errors="replace") as file:
            lines = Lines(_watched(file, path, progress))
            reader = options.format or _detect(lines)
            found = FORMATS[reader].read(lines, options)
            intervals = [i for i in found.intervals if i.end - i.start >= max(options.min_gap_s, 1e-9)]
    except LogError as error:
        raise LogError(f"{path}{'' if str(error).startswith(':') else ': '}{error}") from None
    except UNREADABLE as error:
        raise LogError(f"{path}: {error}") from error
    raise NotImplementedError
