"""Bounds the size and time of the answers that a client takes, whatever sends them.

A socket's owner may be another program than our daemon, or a broken daemon: an answer may have no end, unpack
to gigabytes, or lead from page to page for ever.
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MOST_MB = 100
"""MB of the answers to one question that a client reads: to show them takes up to 25 times as much memory."""
PORTION = 65_536
"""Bytes that are read at once."""
PAGES_S = 600.0
"""Seconds for which a client asks for the pages of an answer."""
MB = 1_000_000
MOST_DIGITS = 18
"""A number in a header has no more."""


class OddAnswerError(Exception):
    """An answer that our daemon never gives; the message says what is odd."""


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """Bounds on the size of the answers to one question, and on the wait for one.

    Without `patience_s` as long as clients do.
    """

    most_mb: int = MOST_MB
    patience_s: float | None = None


@dataclass(slots=True)
class Allowance:
    """The remaining bytes of the answers to one question, and their deadline (monotonic, s)."""

    most_mb: int = MOST_MB
    left: int = field(init=False)
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.most_mb * MB
        self.until = time.monotonic() + PAGES_S

    def read(self, answer: http.client.HTTPResponse) -> Any:
        """Return the JSON in an answer.

        Raises:
            OddAnswerError: it is packed, redirects, is cut short, or is more than is allowed.
            ValueError, RecursionError: it is no JSON.
            OSError: as of the socket.
        """
        if not (200 <= answer.status < 300 or answer.status >= 400):
            raise OddAnswerError(f"it answered {answer.status} {answer.reason[:40]}".rstrip())
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise OddAnswerError("its answer is packed, which was not asked for")
        number(answer.headers, "Content-Length")
        parts = list[bytes]()
        while part := answer.read(PORTION):
            self.left -= len(part)
            if self.left < 0:
                raise OddAnswerError(
                    f"its answer has more than {self.most_mb} MB; ask for less, such as with --limit"
                )
            parts.append(part)
        if answer.length:
            raise OddAnswerError(f"its answer ends {answer.length} bytes early")
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


class BoundedSocket(socket.socket):
    """A connection that receives until a moment (monotonic): an answer in small pieces would have no end."""

    until = math.inf

    @classmethod
    def to(cls, where: Path | str, until: float) -> BoundedSocket:
        """Connect to the path of a Unix socket, in whose queue it waits for its turn, or to host:port.

        Raises:
            OSError: nothing there takes connections; BlockingIOError: too many wait.
        """
        left_s = max(0.1, until - time.monotonic())
        if isinstance(where, Path):
            found = cls(socket.AF_UNIX)
            try:
                patience = struct.pack("ll", math.ceil(left_s), 0)
                found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
                found.connect(str(where))  # one with a timeout of Python's would not wait in the queue
            except OSError:
                found.close()
                raise
        else:
            there = urlsplit(f"//{where}")
            tcp = socket.create_connection((there.hostname or "", there.port or 80), timeout=left_s)
            found = cls(fileno=tcp.detach())
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body are sent apart
        found.until = time.monotonic() + left_s
        found.settimeout(left_s)
        return found

    def recv_into(self, *args: Any) -> int:
        """As `socket.recv_into`.

        Raises:
            TimeoutError: the moment has come.
        """
        left_s = self.until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("there is no time left")
        self.settimeout(left_s)
        return super().recv_into(*args)


def number(headers: Mapping[str, str] | Message, name: str) -> int:
    """Return the number in a header; 0 without this header.

    Raises:
        OddAnswerError: it is not a number.
    """
    text = headers.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise OddAnswerError(f"its header {name} is {text[:40]!r}, which is no number")
    return int(text)
