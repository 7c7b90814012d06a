"""The bounds and headers of answers with many rows, which come in pages.

`GET /v1/trainers` lists the trainers that have not ended, up to a bound, and the others in pages.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from bftrainer.threads import check

ENDED = 100
"""Ended trainers that are listed without `limit`."""
MAX_ENDED = 1000
"""Ended trainers in one answer, at most; `skip` leads to the next page."""
MAX_ROWS = 10_000
"""Events, pauses or reports in one answer, at most; `before` leads to the next page."""
LEFT_OUT = "Bftrainer-Left-Out"
"""The header of the answer that tells how many trainers that ended are left out."""
WAITING_LEFT_OUT = "Bftrainer-Waiting-Left-Out"
"""The header that tells how many trainers that wait are left out."""
NEXT = "Bftrainer-Next"
"""The header, where an answer leaves out rows, with what leads to them: `after` for trainers that wait,
`before` for events, pauses and reports."""

RETRIED = frozenset({429, 503})
"""The statuses of answers after which a client may try again: nothing was done."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=lambda odd: None, allow_nan=False)


def dumps(value: object) -> str:
    """Return a value as JSON; halves of surrogate pairs, which readers of JSON refuse, become "?". What
    cannot be JSON, as NaN, infinity, or bytes of a damaged row, becomes null."""
    try:
        text = _ENCODER.encode(value)
    except ValueError:  # rare: most values are encoded once, and looked at by nobody else
        text = _ENCODER.encode(finite(value))
    return text.encode("utf-8", "replace").decode()


def finite(value: Any) -> Any:
    """Return a value with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def encoded(rows: Iterable[Mapping[str, Any]], most: float = float("inf")) -> list[bytes]:
    """Return rows as JSON, the first in any case, and no more than `most` bytes of them.

    Each row is encoded by itself, so that other threads get their turn between two.
    """
    found, size = list[bytes](), 0
    for row in rows:
        check()
        text = dumps(row).encode()
        size += len(text) + 1
        if found and size > most:
            break
        found.append(text)
    return found


def joined(rows: Iterable[bytes]) -> bytes:
    """Return rows that are JSON as one JSON array."""
    return b"[" + b",".join(rows) + b"]"
