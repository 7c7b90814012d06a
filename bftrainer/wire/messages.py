"""What may come from an agent: it runs as its user, who may have put anything in its place. Pure.

What passes is of the right kinds and sizes for books and decisions; whether it is true is another matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

MOST = 10**15
LONGEST_S = 1e7
MAX_TEXT = 10_000
MAX_METRICS = 1_000
MAX_NAME = 200

PHASES = ("starting", "ready", "member", "finished", "leaving")


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


def _size(value: Any) -> bool:
    return _count(value) and value > 0


def _code(value: Any) -> bool:
    return type(value) is int and abs(value) <= MOST


def _seconds(value: Any) -> bool:
    return _number(value) and 0 <= value <= LONGEST_S


def _pause(value: Any) -> bool:
    """A script that is new on its node knows of no step before."""
    return value is None or _seconds(value)


def _rate(value: Any) -> bool:
    return value is None or (_number(value) and 0 <= value <= MOST)


def _moment(value: Any) -> bool:
    return _number(value) and abs(value) <= MOST


def _number(value: Any) -> bool:
    return type(value) in (int, float) and not math.isnan(value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _metrics(value: Any) -> bool:
    """Names and numbers; a loss may well be NaN."""
    return (
        isinstance(value, dict)
        and len(value) <= MAX_METRICS
        and all(len(name) <= MAX_NAME for name in value)
        and all(type(v) is float or (type(v) is int and abs(v) <= MOST) for v in value.values())
    )


def _last(value: Any) -> bool:
    return value == {} or sane(value)


KINDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("trainer", "started", "run", "generation", "joined"), _count),
    **dict.fromkeys(("step", "samples", "epoch", "bytes"), _count),
    "seconds": _seconds,
    "pause_s": _pause,
    **dict.fromkeys(("type", "reason", "problem"), _text),
    "size": _size,
    "code": _code,
    "rate": _rate,
    "at": _moment,
    "survivor": lambda value: isinstance(value, bool),
    "phase": lambda value: value in PHASES,
    "metrics": _metrics,
    "last": _last,
}


def sane(message: object) -> bool:
    """Whether every field of a message that is known has a possible value."""
    if not isinstance(message, dict) or (
        message.get("type") == "joined" and not _seconds(message.get("pause_s"))
    ):
        return False
    return all(key not in KINDS or KINDS[key](value) for key, value in message.items())
