"""The file that Slurm's `jobcomp/filetxt` plugin writes: one finished job a line, `key=value` pairs."""

from __future__ import annotations

import re

from bftrainer.traces.formats.jobs import LoggedJob, found
from bftrainer.traces.formats.lines import BrokenLineError, Lines, ReadIntervals, shown
from bftrainer.traces.formats.options import LogOptions
from bftrainer.traces.formats.sacct import used

KEYS = re.compile(r" StartTime=(\S+) EndTime=(\S+) NodeList=(\S*)")
"""Fields in the plugin's order; the job's name before them may contain blanks and equals signs."""


def recognises(line: str) -> bool:
    """True if this is a job of such a file."""
    return line.startswith("JobId=")


def read(lines: Lines, options: LogOptions) -> ReadIntervals:
    """The times in which no job used a node, for all nodes that any job used.

    Raises:
        LogError: no job ever ran.
    """
    return found(lines.each(parse))


def parse(line: str) -> LoggedJob:
    """One line's job.

    Raises:
        BrokenLineError: a key is missing, or its value is impossible.
    """
    match = KEYS.search(line)
    if match is None:
        raise BrokenLineError(f"{shown(line)} lacks StartTime=, EndTime=, NodeList= in this order")
    return used(match[1], match[2], match[3])
