"""Ends of jobs, from bjobs and bhist: preempted, at their run limit, killed, failed, or vanished. Pure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping

from bftrainer.schedulers.lsf import values
from bftrainer.schedulers.lsf.rows import EndKind, LsfJobEnd
from bftrainer.schedulers.lsf.text import tables
from bftrainer.schedulers.shared.text import TextError

SIGNALLED = 128
"""A job that a signal has ended exits with this and the signal's number."""
RUN_LIMIT = 140
"""At its run limit a job gets SIGUSR2, which is 12."""
BY_SIGNAL = frozenset(range(SIGNALLED + 1, SIGNALLED + 65))
KINDS: Mapping[str, EndKind] = {
    "TERM_RUNLIMIT": EndKind.LIMIT,
    "TERM_DEADLINE": EndKind.LIMIT,
    "TERM_PREEMPT": EndKind.PREEMPTED,
    "TERM_BUCKET_KILL": EndKind.KILLED,
    "TERM_FORCE_OWNER": EndKind.KILLED,
    "TERM_FORCE_ADMIN": EndKind.KILLED,
    "TERM_OWNER": EndKind.KILLED,
    "TERM_ADMIN": EndKind.KILLED,
    "TERM_EXTERNAL_SIGNAL": EndKind.KILLED,
    "TERM_REQUEUE_OWNER": EndKind.KILLED,
    "TERM_REQUEUE_ADMIN": EndKind.KILLED,
}
"""LSF's words for who ended a job. All others, such as TERM_MEMLIMIT, are failures."""


def ends(text: str) -> dict[str, LsfJobEnd]:
    """Return how jobs have ended, by number, as `bjobs -a -o` says. A job whose exit code it leaves open is
    left out: bhist may know it.

    Raises:
        TextError: it is not what bjobs prints.
    """
    found = {}
    for row in tables.records(text):
        state, code = row.get("STAT", ""), values.number(row.get("EXIT_CODE", ""))
        reason = row.get("EXIT_REASON", "")
        if state == "DONE":
            found[row.get("JOBID", "")] = LsfJobEnd(EndKind.DONE, 0)
        elif state == "EXIT" and (code is not None or "TERM_" in reason):
            found[row.get("JOBID", "")] = kind_of(code, reason)
    return found


def kind_of(code: int | None, reason: str) -> LsfJobEnd:
    """Return how a job ended that did not end well, by its exit code and by LSF's words for it."""
    term = re.search(r"TERM_[A-Z_]+", reason)
    words = reason.strip(" ;.")
    if term:
        return LsfJobEnd(KINDS.get(term[0], EndKind.FAILED), code, words)
    if code == RUN_LIMIT:
        return LsfJobEnd(EndKind.LIMIT, code, words)
    return LsfJobEnd(EndKind.KILLED if code in BY_SIGNAL else EndKind.FAILED, code, words)


def history(text: str) -> dict[str, LsfJobEnd]:
    """Return how jobs have ended, by number, as `bhist -l` says; those that have not are left out. The last
    end counts: a job may have been requeued."""
    found: dict[str, LsfJobEnd] = {}
    job, code = "", None
    for line in tables.unwrapped(text):
        if head := re.match(r"Job <([0-9]{1,12}(?:\[[0-9]{1,9}\])?)>", line):
            job, code = head[1], None
        elif not job:
            continue
        elif exited := re.search(r": Exited with exit code ([0-9]{1,3})\b", line):
            code = int(exited[1])
        elif re.search(r": (?:Exited by signal|Exited; job has been forced)", line):
            code = code or SIGNALLED + 9
        elif completed := re.search(r": Completed <exit>(?:; ?(.*))?$", line):
            found[job] = kind_of(code, completed[1] or "")
        elif re.search(r": (?:Done successfully|Completed <done>)", line):
            found[job] = LsfJobEnd(EndKind.DONE, 0)
        elif re.search(r": (?:Dispatched|Starting) ", line):
            found.pop(job, None)
            code = None
    return found


def of_jobs(asked: Collection[str], shown: str, remembered: str) -> dict[str, LsfJobEnd]:
    """Return how each of the jobs ended, from what bjobs shows and, for what it leaves open, from what bhist
    remembers."""
    found: dict[str, LsfJobEnd] = {}
    with contextlib.suppress(TextError):
        found = ends(shown)
    later = history(remembered)
    return {job: found.get(job) or later.get(job) or LsfJobEnd(EndKind.VANISHED) for job in asked}
