"""Texts that come from outside: what a terminal, a database and JSON can bear; counts and spans in words."""

from __future__ import annotations

import re
from typing import TypeVar

T = TypeVar("T")

_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters: ESC starts what a terminal obeys
    "\ud800-\udfff"  # halves of a pair (surrogates): they can be neither stored nor printed
    "\u2028\u2029"  # end a line
    # format characters (Unicode's category Cf): they turn the direction of what follows, or show nothing
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    # others that show nothing (default ignorable): joiners, fillers and selectors of variants
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
_CONTROL_IN_LINES = re.compile(_CONTROL.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))

_SPAN = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*(s|m|min|h|d)?")
_SPAN_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}

_FORMULA = tuple("=+-@\t\r＝＋－＠")  # noqa: RUF001  the wide ones, too: some spreadsheets take them as these


def plain(text: str, *, lines: bool = False) -> str:
    """The text itself, if a terminal shows it as it is, and it can be stored. With `lines`, tabs and ends of
    lines are allowed.

    Raises:
        ValueError: it has a control or invisible character, or half of a surrogate pair; which and where.
    """
    found = (_CONTROL_IN_LINES if lines else _CONTROL).search(text)
    if found is not None:
        raise ValueError(
            f"contains the control character {found[0]!a} at position {found.start()}: remove it"
        )
    return text


def shown(text: str) -> str:
    """The text as a terminal may show it: what `plain` refuses is escaped."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def held(text: str) -> int:
    """The bytes of memory that Python takes for a text's characters: one wide character makes all of them
    wide, so that a text has up to four times as many as in UTF-8."""
    highest = ord(max(text, default="a"))
    return len(text) * (1 if highest < 0x100 else 2 if highest < 0x10000 else 4)


def cell(value: T) -> T | str:
    """A value for a cell of CSV. Before a text that a spreadsheet would carry out as a formula it has an
    apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def cut(text: str, most: int) -> str:
    """The first `most` characters of a text; dots stand for what is left out."""
    return text if len(text) <= most else f"{text[:most]}..."


def counted(number: int, one: str, more: str = "") -> str:
    """A number with a word that fits it: "1 trial", "2,000 trials"; with `more` for several: "1 job has",
    "2,000 jobs have"."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def duration(seconds: float) -> str:
    """A time span with two digits that count: "45 s", "12 min", "3.5 h", "2.1 d"."""
    for unit, name in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * unit:
            value = seconds / unit
            return f"{value:.1f} {name}" if value < 10 and name != "min" else f"{value:.0f} {name}"
    return f"{seconds:.0f} s"


def clock(seconds: float) -> str:
    """A time span as h:mm:ss, or mm:ss below an hour."""
    whole = round(seconds)
    text = f"{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{whole // 3600}:{text}" if whole >= 3600 else text


def span_s(text: str) -> float | None:
    """Seconds from a time span such as 90s, 30m, 2h or 1d, or a number of seconds; None if invalid."""
    found = _SPAN.fullmatch(text.strip())
    return float(found[1]) * _SPAN_UNITS[found[2] or "s"] if found else None
