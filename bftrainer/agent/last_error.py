"""Finds in a worker's log why its script failed: the error of the last traceback, or the last line."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bftrainer.files import open_regular
from bftrainer.wire.words import fit

MOST_BYTES = 16 * 1024
"""Bytes to read at the end of a log."""
MOST_SAID = 200
"""Characters of a line to report."""
TRACEBACK = "Traceback (most recent call last):"
ASIDE = ("Exception ignored in", "Exception in thread")
"""Introductions of tracebacks that did not end the script."""
_RANK = re.compile(r"\[rank[0-9]+\]: ?")
_OURS = re.compile(r"[0-9-]{10} [0-9:]{8} bftrainer: ")


def last_error(log: Path, start: int) -> str:
    """Return what to say of a script that ended with an exit code, from what it printed after `start`, its
    offset in bytes: ": ValueError: too steep", "; its last line: ..."; empty if there is nothing to say."""
    try:
        with open_regular(log) as file:
            file.seek(max(start, os.fstat(file.fileno()).st_size - MOST_BYTES))
            printed = file.read(MOST_BYTES)
    except OSError:  # the exit code has to do
        return ""
    return said_in(printed.decode(errors="replace")) or ("" if printed else _unwritten(log))


def _unwritten(log: Path) -> str:
    """Reason why the log may be empty: nothing can be written there, as the disk is full."""
    try:
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(file, b"\n")
        finally:
            os.close(file)
    except OSError as error:
        return f"; its log cannot be written: {error.strerror}"
    return ""


def said_in(text: str) -> str:
    """The error that `last_error` reads in this text. Lines after a traceback, such as warnings at the exit,
    do not count."""
    lines = [_RANK.sub("", line.rstrip().rpartition("\r")[2], count=1) for line in text.split("\n")]
    lines = [line for line in lines if line and not _OURS.match(line)]
    begins = [i for i, line in enumerate(lines) if line.strip() == TRACEBACK]
    own = [i for i in begins if not (i and lines[i - 1].startswith(ASIDE))]
    for i in reversed(own):
        error = next((line for line in lines[i + 1 :] if not line[0].isspace()), "")
        if error:
            return f": {fit(error, MOST_SAID)}"
    return f"; its last line: {fit(lines[-1].strip(), MOST_SAID)}" if lines else ""
