"""The time to wait until something that failed is tried again. Pure."""

from __future__ import annotations

MOST_DOUBLINGS = 60
"""Beyond, no number of seconds makes sense; and after a thousand, no number holds them."""


def backoff_s(first_s: float, doublings: int, most_s: float) -> float:
    """`first_s`, doubled `doublings` times (0 if negative), `most_s` at most; in seconds."""
    return min(most_s, first_s * 2.0 ** max(0, min(doublings, MOST_DOUBLINGS)))
