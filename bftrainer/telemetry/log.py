"""One line for every event, with fields, readable by people (`text`) or by journald (`logfmt`).

`note` writes such a line; ordinary log calls come out in the same form. Texts that users can influence are
quoted and escaped, so that none can begin a new line or a field of its own.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from logging.handlers import QueueHandler, QueueListener
from typing import IO, Any, Literal

from bftrainer.model.text import shown

Format = Literal["auto", "text", "logfmt"]

PLAIN = re.compile(r"[\w.:/@+,%*-]+", re.ASCII)
MAX_VALUE = 2_000
MAX_TRACE = 16_000  # journald cuts lines at 48 KiB, and the rest would look like a line of its own
MAX_NAMES = 20
WINDOW_S = 60.0
LINES_OF_A_KIND = 300
"""Lines of one kind in `WINDOW_S`: whatever users cause, the log fills no disk. journald, which rotates its
files, allows 10,000 of all kinds in 30 s."""
QUEUED = 2000
"""Lines that wait for a standard error that takes none at the moment; further ones are lost."""
FLUSH_S = 2.0
"""Seconds that the process waits at its end until all lines are written."""
PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Levels and syslog's numbers for them; what is below is 7, debug."""


def note(logger: logging.Logger, event: str, level: int = logging.INFO, /, **fields: object) -> None:
    """One line for one event. Fields that are None or empty are left out.

    The daemon's log bounds the lines of one event in a minute, and tells how many it has left out: what
    anybody can cause may be noted each time.
    """
    if logger.isEnabledFor(level):
        logger.log(level, "%s", event, extra={"event": event, "fields": fields})


def names(nodes: Iterable[str]) -> str | None:
    """Names as one field: a set of nodes such as a08,a11; of many only the first, and how many more."""
    ordered = sorted(nodes)
    more = [f"+{len(ordered) - MAX_NAMES}"] if len(ordered) > MAX_NAMES else []
    return ",".join(ordered[:MAX_NAMES] + more) or None


class RateFilter(logging.Filter):
    """Admits `most` lines of each kind in `WINDOW_S`; `lines_left_out` tells the number of the others.

    A kind is an event (see `note`), or one place of the program that writes a message: users can influence a
    message's text.
    """

    def __init__(self, most: int = LINES_OF_A_KIND, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._until = clock() + WINDOW_S

    def filter(self, record: logging.LogRecord) -> bool:
        """Count a line; is it one of the first of its kind?"""
        kind = _kind(record)
        with self._lock:
            over = self._counts if self._clock() >= self._until else None
            if over is not None:
                self._counts, self._until = Counter(), self._clock() + WINDOW_S
            self._counts[kind] += 1
            admitted = self._counts[kind] <= self._most
        for other, count in (over or {}).items():
            if count > self._most:
                logger = logging.getLogger(record.name)
                note(logger, "lines_left_out", logging.WARNING, kind=other, count=count - self._most)
        return admitted


def _kind(record: logging.LogRecord) -> str:
    """An event with the bound or part that it names, or a line of the program."""
    event = getattr(record, "event", None)
    if event is None:
        return f"{record.name}:{record.lineno}"
    return ":".join([event, *(str(_of(record)[key]) for key in ("bound", "part") if key in _of(record))])


class QueuedHandler(QueueHandler):
    """Has a thread write the lines: a stream that takes nothing keeps nobody waiting, and loses lines."""

    def __init__(self, stream: IO[str]) -> None:
        self._waiting: queue.Queue[Any] = queue.Queue(QUEUED)
        super().__init__(self._waiting)
        QueueListener(self._waiting, logging.StreamHandler(stream)).start()

    def enqueue(self, record: logging.LogRecord) -> None:
        """Give a line to the thread, unless too many wait for it."""
        with suppress(queue.Full):
            super().enqueue(record)

    def flush(self) -> None:
        """Wait until all lines are written, for `FLUSH_S` at most."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, FLUSH_S)


def configure(
    form: Format, *, verbose: bool = False, stream: IO[str] | None = None, bounded: bool = False
) -> None:
    """Send the whole process's log to its standard error; the form `auto` follows from what reads there.

    A `bounded` log bounds its lines in a minute, and waits for no reader of standard error.
    """
    out = sys.stderr if stream is None else stream
    logfmt = form == "logfmt" or (form == "auto" and read_by_journald(out, os.environ))
    handler: logging.Handler = QueuedHandler(out) if bounded else logging.StreamHandler(out)
    if bounded:
        handler.addFilter(RateFilter())
    handler.setFormatter(Logfmt() if logfmt else Text())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    for noisy in ("asyncio", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def read_by_journald(stream: IO[str], environ: Mapping[str, str]) -> bool:
    """True if JOURNAL_STREAM names this very stream, as device:inode (see systemd.exec(5))."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class Text(logging.Formatter):
    """`<time> INFO nodes_changed joined=3 reason=poll`; a traceback's lines are marked with a bar."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        """The message with its fields."""
        said = record.message
        if not hasattr(record, "event") and "=" in said:  # an exception's text or a script's last line
            said = _json(said)  # in quotes, as those of fields: no part of it looks like a field
        record.message = " ".join([shown(said), *_fields(_of(record))])
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        """The traceback, each line marked."""
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"  | {shown(line)}" for line in lines)


class Logfmt(logging.Formatter):
    """`<6>event=nodes_changed joined=3 reason=poll`: syslog's priority, then nothing but fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The whole record as one line."""
        priority = next((number for level, number in PRIORITIES if record.levelno >= level), 7)
        event = getattr(record, "event", None)
        said: dict[str, object] = {"event": event or "message"}
        if event is None:
            said |= {"logger": record.name, "msg": record.getMessage()}
        parts = _fields(said | _of(record))
        if record.exc_info:
            parts.append(f"exc={_value(self.formatException(record.exc_info), MAX_TRACE)}")
        return f"<{priority}>{' '.join(parts)}"


def _of(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


def _fields(fields: Mapping[str, object]) -> list[str]:
    return [f"{name}={_value(value)}" for name, value in fields.items() if value not in (None, "")]


def _value(value: object, most: int = MAX_VALUE) -> str:
    """A value bare if it cannot be misread, else as a JSON string in ASCII."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if PLAIN.fullmatch(text) and len(text) <= most:
        return text
    written = _json(text)
    while len(written) > most:
        text = text[: len(text) * most // len(written)]
        written = _json(f"{text}...")
    return written


def _json(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")
