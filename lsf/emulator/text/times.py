"""Times and durations as LSF's commands print them, in the machine's time zone."""

from __future__ import annotations

import time


def short(when: float) -> str:
    """`Apr  8 16:57`: without seconds and year."""
    return _written("%b %e %H:%M", when)


def long(when: float) -> str:
    """`Sep 30 20:32:14 2026`."""
    return _written("%b %e %H:%M:%S %Y", when)


def slashed(when: float) -> str:
    """`03/31-14:46:42`, as bjobs -W prints it."""
    return _written("%m/%d-%H:%M:%S", when)


def jobstat(when: float) -> str:
    """`04/09 10:06:23`."""
    return _written("%m/%d %H:%M:%S", when)


def event(when: float) -> str:
    """`Wed Jan 21 22:12:59`, before each line of a job's history."""
    return _written("%a %b %e %H:%M:%S", when)


def _written(form: str, when: float) -> str:
    return time.strftime(form, time.localtime(when))


def phrase(seconds: float) -> str:
    """`25 hours 42 minutes 51 seconds`: always plural, without leading units that are zero."""
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    words = [(hours, "hours"), (minutes, "minutes"), (left, "seconds")]
    while len(words) > 1 and not words[0][0]:
        words.pop(0)
    return " ".join(f"{count} {unit}" for count, unit in words)


def clock(seconds: float) -> str:
    """`57:06` or `2:00:00`."""
    hours, rest = divmod(max(0, int(seconds)), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def hours(seconds: float) -> str:
    """`0:1`: hours and minutes, as in TIME_LEFT."""
    whole = max(0, int(seconds)) // 60
    return f"{whole // 60}:{whole % 60}"
