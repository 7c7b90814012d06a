"""Single values as LSF's commands print them: durations, times, numbers, lists of hosts. Pure.

LSF prints local times, often without a year or seconds, and every value as a text; "-" or nothing stands for
no value. What cannot be read is no value, too: a user cannot stop the daemon with a text of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from math import inf

NOTHING = frozenset({"", "-", "N/A"})
"""Texts that stand for no value."""
UNLIMITED = "UNLIMITED"
MOST_SLOTS = 10_000_000
"""No machine has more slots; a larger number is no number of slots."""
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
MINUTE_S, HOUR_S = 60.0, 3600.0
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_WINDOW = re.compile(
    r"(?:([0-9]{1,9}) hours?)? ?(?:([0-9]{1,9}) minutes?)? ?(?:([0-9]{1,9}) seconds?)?", re.ASCII
)
_MOMENT = re.compile(
    r"(?:(?P<day_name>[A-Z][a-z]{2}) )?"
    r"(?:(?P<name>[A-Z][a-z]{2}) +(?P<day>[0-9]{1,2}) |(?P<month>[0-9]{1,2})/(?P<of>[0-9]{1,2})[- ])"
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?"
    r"(?: (?P<year>[0-9]{4}))?(?: [LEX])?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in Unix seconds. LSF rounds down: the true time is later by less than `rounded_s`."""

    at: float
    rounded_s: float


def plain(text: str) -> str:
    """A text without the blanks around it; empty where it stands for no value."""
    text = text.strip()
    return "" if text in NOTHING else text


@lru_cache(maxsize=4096)
def number(text: str) -> int | None:
    """Parse a whole number that is not negative; return None for any other text."""
    text = text.strip()
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def count(text: str) -> int:
    """Parse a number of slots or jobs; return 0 for any other text."""
    found = number(text)
    return found if found is not None and found <= MOST_SLOTS else 0


@lru_cache(maxsize=4096)
def window_s(text: str) -> float | None:
    """Parse the length of a backfill window, such as `1 hours 11 minutes 50 seconds`; return inf for
    UNLIMITED, None for any other text."""
    text = " ".join(text.split())
    if text == UNLIMITED:
        return inf
    match = _WINDOW.fullmatch(text)
    if not match or not any(match.groups()):
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * HOUR_S + minutes * MINUTE_S + seconds


@lru_cache(maxsize=4096)
def left_s(text: str) -> float | None:
    """Parse the rest of a job's run limit in bjobs, hours:minutes such as `0:1 L`; None if not given."""
    match = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,2})(?: [LEX])?", text.strip())
    return int(match[1]) * HOUR_S + int(match[2]) * MINUTE_S if match else None


def moment(text: str, now: float) -> Moment | None:
    """A time in any of LSF's forms: `Apr  8 16:57`, `Sep 30 20:32:14 2026 L`, `03/31-14:46:42`,
    `Wed Jan 21 22:12:59`. One without a year is the one nearest to `now`. None if it is no time."""
    match = _MOMENT.fullmatch(text.strip())
    if not match or (match["day_name"] or "Mon") not in DAYS:
        return None
    if match["name"]:
        if match["name"] not in MONTHS:
            return None
        month, day = MONTHS.index(match["name"]) + 1, int(match["day"])
    else:
        month, day = int(match["month"]), int(match["of"])
    this = datetime.fromtimestamp(now).year  # noqa: DTZ006  LSF prints local times
    years = [int(match["year"])] if match["year"] else [this - 1, this, this + 1]
    clock = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    found = [at for year in years if (at := _local(year, month, day, clock)) is not None]
    if not found:
        return None
    return Moment(min(found, key=lambda at: abs(at - now)), 1.0 if match["second"] else MINUTE_S)


def _local(year: int, month: int, day: int, clock: tuple[int, int, int]) -> float | None:
    try:
        return datetime(year, month, day, *clock).timestamp()  # noqa: DTZ001  LSF prints local times
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=256)  # each may have all hosts of the machine
def exec_hosts(text: str) -> tuple[tuple[str, int], ...]:
    """The hosts of a job with its slots on each, in their order: `16*c033:16*c024`, `c033:12*c024`, `c1:c1`.

    Words that are no host are left out: LSF knows its own hosts."""
    found: dict[str, int] = {}
    for word in plain(text).split(":"):
        many, star, name = word.strip().rpartition("*")
        slots = count(many) if star else 1
        if slots and HOST_NAME.fullmatch(name):
            found[name] = found.get(name, 0) + slots
    return tuple(found.items())


def without_launch(hosts: Iterable[tuple[str, int]], launch: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Hosts without those that only launch jobs, which match one of the patterns in `launch`, such as
    `batch*`."""
    patterns = tuple(launch)
    return tuple((name, slots) for name, slots in hosts if not is_launch(name, patterns))


def is_launch(host: str, patterns: Iterable[str]) -> bool:
    """Return whether a host only launches jobs and never computes."""
    return any(fnmatchcase(host, pattern) for pattern in patterns)


def listed_hosts(text: str) -> Mapping[str, int]:
    """The hosts of a backfill window with its slots on each: `12*m4140 12*m4168`."""
    return dict(pair for word in text.split() for pair in exec_hosts(word))
