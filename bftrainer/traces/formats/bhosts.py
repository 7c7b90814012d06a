"""Periodic dumps of LSF's `bhosts -w`, in samples as `dumps` has them:

    1647471604                                         Unix time of the sample
    HOST_NAME  STATUS  JL/U  MAX  NJOBS  RUN  SSUSP  USUSP  RSV
    a01n01     ok      -     42   0      0    0      0      0
    ----                                               end of the sample

A host is in the pool if no slot of it has a job that runs or is suspended, and its status is `ok` or, as
slots that LSF reserves for pending jobs count as used, `closed_Full`. What other commands (bslots, jobstat)
print in a sample names no idle hosts and is passed over. Hosts that only launch jobs are left out.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from bftrainer.traces.formats import dumps
from bftrainer.traces.formats.lines import BrokenLineError, Lines, ReadIntervals, shown
from bftrainer.traces.formats.options import LogOptions

HEADER = "HOST_NAME"
NEEDED = ("STATUS", "RUN", "SSUSP", "USUSP", "RSV")
USABLE = frozenset({"ok", "closed_Full"})


def recognises(line: str) -> bool:
    """True if this is the header of bhosts."""
    cells = line.split()
    return cells[:1] == [HEADER] and {*NEEDED} <= {*cells}


def read(lines: Lines, options: LogOptions) -> ReadIntervals:
    """The stays in the pool from the first sample to the last.

    Raises:
        LogError: there is no whole sample.
    """
    launch = options.launch_hosts.split(",")
    return dumps.found(dumps.samples(lines, lambda: _Sample(launch).line), "bhosts -w")


class _Sample:
    """Reads the lines of one sample: hosts from the header of bhosts on, until a line is of another table."""

    def __init__(self, launch: Collection[str]) -> None:
        self._launch = launch
        self._columns: list[str] | None = None

    def line(self, line: str) -> tuple[Collection[str], Collection[str]]:
        """The idle host of a line, and the host that it names."""
        cells = line.split()
        if recognises(line):
            self._columns = cells
            return (), ()
        if self._columns is None:
            return (), ()
        if len(cells) != len(self._columns):
            if cells[0].startswith(("SLOTS", "---", "JobId", "No")):
                self._columns = None
                return (), ()
            raise BrokenLineError(f"{shown(line)} is no line of bhosts: {' '.join(self._columns)}")
        row = dict(zip(self._columns, cells, strict=True))
        counts = [row[name] for name in ("RUN", "SSUSP", "USUSP")]
        if not all(text.isdecimal() for text in counts):
            raise BrokenLineError(f"{shown(line)}: {', '.join(counts)} are no numbers of slots")
        if row["STATUS"] == "closed":
            raise BrokenLineError(f"{shown(line)}: closed for no reason that it says; take bhosts -w")
        host = row[HEADER]
        if any(fnmatchcase(host, pattern) for pattern in self._launch):
            return (), ()
        idle = row["STATUS"] in USABLE and not any(map(int, counts))
        full = row["STATUS"] == "closed_Full" and row["RSV"] == "0"  # closed by something else than a job
        computes = row.get("MAX") != "0"  # management hosts may have no slots
        return ((host,) if idle and computes and not full else ()), (host,)
