"""lsb.acct, LSF's file of finished jobs: one JOB_FINISH record a line, texts in quotes.

Fields are known by their place. Their number differs between versions of LSF: what follows the fields read
here does not matter. A job that was suspended or started again shows its last run only. Hosts that only
launch jobs are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bftrainer.traces.formats.jobs import NEVER, LoggedJob, found
from bftrainer.traces.formats.lines import BrokenLineError, Lines, ReadIntervals, shown
from bftrainer.traces.formats.options import LogOptions

RECORD = "JOB_FINISH"
TOKEN = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
"""A text in quotes, in which a quote is doubled; or a number."""
BEFORE_HOSTS = 22
RUSAGE = 19
STATES = {32: "EXIT", 64: "DONE"}


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job that has ended. Times are Unix seconds; `start` 0: it never started. `hosts` are in the order of
    the record, each with the job's slots there. `exit_status` is as wait(2) gives it."""

    job: str
    user: str
    queue: str
    submit: float
    start: float
    end: float
    slots: int
    hosts: dict[str, int]
    state: str
    name: str
    exit_status: int


def recognises(line: str) -> bool:
    """True if this is a record of lsb.acct."""
    return re.match(r'"[A-Z_]+" "[0-9.]+" [0-9]+ ', line) is not None


def read(lines: Lines, options: LogOptions) -> ReadIntervals:
    """The times in which no job used a host, for all hosts that any job used.

    Raises:
        LogError: no job ever ran.
    """

    def parse(line: str) -> LoggedJob | None:
        job = finished(line)
        if job is None:
            return None
        if not job.start or not job.hosts:
            return NEVER
        if job.end < job.start:
            raise BrokenLineError(f"the end {job.end:.0f} is before the start {job.start:.0f}")
        return LoggedJob(job.start, job.end, [host for host in job.hosts if not _launches(host, options)])

    return found(lines.each(parse))


def _launches(host: str, options: LogOptions) -> bool:
    return any(fnmatchcase(host, pattern) for pattern in options.launch_hosts.split(","))


def finished(line: str) -> FinishedJob | None:
    """The job of one line; None for a record of another kind.

    Raises:
        BrokenLineError: a field is missing or is no number.
    """
    fields = tokens(line)
    if fields[:1] != [RECORD]:
        if recognises(line):
            return None
        raise BrokenLineError(f"{shown(line)} is no record of lsb.acct")
    at = BEFORE_HOSTS
    asked = _number(fields, at)
    at += 1 + asked
    used = _number(fields, at)
    hosts: dict[str, int] = {}
    for name in fields[at + 1 : at + 1 + used]:
        many, star, host = name.rpartition("*")
        hosts[host] = hosts.get(host, 0) + (int(many) if star and many.isdecimal() else 1)
    at += 1 + used
    return FinishedJob(
        job=str(_number(fields, 3)),
        user=_text(fields, 11),
        queue=_text(fields, 12),
        submit=float(_number(fields, 7)),
        start=float(_number(fields, 10)),
        end=float(_number(fields, 2)),
        slots=_number(fields, 6),
        hosts=hosts,
        state=STATES.get(_number(fields, at), "?"),
        name=_text(fields, at + 2),
        exit_status=_number(fields, at + 4 + RUSAGE + 2),
    )


def tokens(line: str) -> list[str]:
    """The fields of a record, without their quotes."""
    return [
        match[1].replace('""', '"') if match[1] is not None else match[2] for match in TOKEN.finditer(line)
    ]


def _text(fields: list[str], at: int) -> str:
    if at >= len(fields):
        raise BrokenLineError(f"it has {len(fields)} fields, and none number {at}")
    return fields[at]


def _number(fields: list[str], at: int) -> int:
    text = _text(fields, at)
    if not re.fullmatch(r"-?[0-9]{1,15}", text):
        raise BrokenLineError(f"{shown(text)} is no whole number")
    if text.startswith("-"):
        raise BrokenLineError(f"{text} is less than nothing")
    return int(text)
