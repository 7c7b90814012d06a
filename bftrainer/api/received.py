"""Bounds the size and time of the answers that a client takes, whatever sends them.

A socket's owner may be no daemon of ours, or one that is broken: an answer may have no end, unpack to
gigabytes, or lead from page to page for ever.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

MOST_MB = 100
"""MB of the answers to one question that a client reads: to show them takes up to 25 times as much memory."""
PAGES_S = 600.0
"""For so long a client asks for the pages of an answer."""
MB = 1_000_000
MOST_DIGITS = 18
"""A number in a header has no more."""


class OddAnswerError(Exception):
    """An answer that no daemon of ours gives; the message says what is odd."""


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """How much of the answers to one question a client reads, and how long it waits for one.

    Without `patience_s` as long as clients do.
    """

    most_mb: int = MOST_MB
    patience_s: float | None = None


@dataclass(slots=True)
class Allowance:
    """How much the answers to one question may bring: in bytes, and until when (monotonic)."""

    most_mb: int = MOST_MB
    left: int = field(init=False)
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.most_mb * MB
        self.until = time.monotonic() + PAGES_S

    async def read(self, answer: aiohttp.ClientResponse) -> Any:
        """Return the JSON in an answer.

        Raises:
            OddAnswerError: it is packed, redirects, or more than is allowed.
            ValueError, RecursionError: it is no JSON.
        """
        if not (200 <= answer.status < 300 or answer.status >= 400):
            raise OddAnswerError(f"it answered {answer.status} {(answer.reason or '')[:40]}".rstrip())
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise OddAnswerError("its answer is packed, which was not asked for")
        parts = list[bytes]()
        async for part in answer.content.iter_any():
            self.left -= len(part)
            if self.left < 0:
                raise OddAnswerError(
                    f"its answer has more than {self.most_mb} MB; ask for less, such as with --limit"
                )
            parts.append(part)
        return json.loads(b"".join(parts))

    def check_time(self) -> None:
        """See that there is time for another page.

        Raises:
            OddAnswerError: there is none.
        """
        if time.monotonic() > self.until:
            raise OddAnswerError(
                f"its answer has not ended after {PAGES_S:g} s of pages; ask for less, such as with --limit"
            )


def number(headers: Mapping[str, str], name: str) -> int:
    """Return the number in a header; 0 without this header.

    Raises:
        OddAnswerError: it is none.
    """
    text = headers.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise OddAnswerError(f"its header {name} is {text[:40]!r}, which is no number")
    return int(text)
