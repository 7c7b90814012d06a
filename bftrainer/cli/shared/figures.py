"""Numbers and times as all commands write them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

DIGITS = 4
"""Significant digits of a figure."""
LARGE = 10 ** (DIGITS - 1)
"""From here on a figure is written as a whole number, up to 10**15, beyond which nobody counts digits."""
SLOW = 10.0
"""Samples/s below which a digit after the point counts."""


def whole(count: int) -> str:
    """Return a count: "96,336"."""
    return f"{count:,}"


def figure(value: float | None) -> str:
    """Return a figure such as a loss with the digits that count: "0.9733", "2.5e-05", "12,346"; "nan/inf" for
    None, which the daemon's JSON has in place of both."""
    if value is None:
        return "nan/inf"
    if math.isfinite(value) and LARGE <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.{DIGITS}g}"


def figures(named: Mapping[str, float | None]) -> str:
    """Return figures as "accuracy=0.98 loss=0.1", sorted by name."""
    return " ".join(f"{name}={figure(value)}" for name, value in sorted(named.items()))


def speed(rate: float | None) -> str | None:
    """Return a speed in samples/s: "1,737", "0.6"; None if there is none."""
    if not rate:
        return None
    return f"{rate:,.0f}" if rate >= SLOW else f"{rate:.2g}"


def moment(seconds: float) -> str:
    """Return a time of this place: "2026-11-26 21:46:52"."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def brief_moment(seconds: float, now: float) -> str:
    """Return a time of this place, without the date if that is today's: "21:46:52", "25 Nov 21:46"."""
    then, today = (datetime.fromtimestamp(at).astimezone() for at in (seconds, now))
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%d %b %H:%M")
