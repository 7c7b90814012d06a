"""One line for every event, with fields, readable by people (`text`) or by journald (`logfmt`).

`note` writes such a line; ordinary log calls come out in the same form. Texts that users can influence are
quoted and escaped, so that none can begin a new line or a field of its own.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import IO, Literal

from bftrainer.telemetry.log_limit import LimitedHandler, LogLimit

Format = Literal["auto", "text", "logfmt"]

PLAIN = re.compile(r"[\w.:/@+,%*-]+", re.ASCII)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
MAX_VALUE = 2_000
MAX_TRACE = 16_000  # journald cuts lines at 48 KiB, and the rest would look like a line of its own
MAX_NAMES = 20
PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Levels and syslog's numbers for them; what is below is 7, debug."""


def note(logger: logging.Logger, event: str, level: int = logging.INFO, /, **fields: object) -> None:
    """One line for one event. Fields that are None or empty are left out.

    The daemon's log takes only so many lines of one event in a minute, and tells how many it has left out:
    what anybody can cause may be noted each time.
    """
    if logger.isEnabledFor(level):
        logger.log(level, "%s", event, extra={"event": event, "fields": fields})


def names(nodes: Iterable[str]) -> str | None:
    """Names as one field: a set of nodes such as a08,a11; of many only the first, and how many more."""
    ordered = sorted(nodes)
    more = [f"+{len(ordered) - MAX_NAMES}"] if len(ordered) > MAX_NAMES else []
    return ",".join(ordered[:MAX_NAMES] + more) or None


def configure(
    form: Format, *, verbose: bool = False, stream: IO[str] | None = None, limit: LogLimit | None = None
) -> None:
    """Send the whole process's log to its standard error; the form `auto` follows from what reads there.

    With a `limit`, only what it admits is written, in a thread of its own: a standard error that takes
    nothing, such as a pipe whose reader is stuck, then keeps nobody waiting.
    """
    out = sys.stderr if stream is None else stream
    logfmt = form == "logfmt" or (form == "auto" and read_by_journald(out, os.environ))
    handler = logging.StreamHandler(out) if limit is None else LimitedHandler(out, limit)
    handler.setFormatter(Logfmt() if logfmt else Text())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    for noisy in ("asyncio", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def tell_left_out() -> None:
    """Have the log tell how many lines the last minute has left out, even if no other line is written."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LimitedHandler):
            handler.tell_left_out()


def read_by_journald(stream: IO[str], environ: Mapping[str, str]) -> bool:
    """Whether JOURNAL_STREAM names this very stream, as device:inode (see systemd.exec(5))."""
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
        record.message = " ".join([_visible(record.message), *_fields(_of(record))])
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        """The traceback, each line marked."""
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"  | {_visible(line)}" for line in lines)


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


def _visible(text: str) -> str:
    """Text on one line: control characters are escaped as in JSON."""
    return CONTROL.sub(lambda found: _json(found[0])[1:-1], text)
