"""How much the daemon writes to its log at most: whatever users or clients cause, the log fills no disk.

Lines of one kind are the lines of one event (see `log.note`), or those that one line of the program writes.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

WINDOW_S = 60.0
ALWAYS = 10
"""So many lines of each kind are written in each window, however much others have written."""
MAX_KINDS = 1000
QUEUED = 2000
"""So many lines wait for a standard error that takes none at the moment."""
FLUSH_S = 2.0
"""At its end, the process waits so long until all lines are written."""


@dataclass(slots=True)
class _Window:
    """The lines of one kind since `begin`."""

    begin: float
    written: int = 0
    left_out: int = 0


class LogLimit:
    """Which lines are written: in a minute so many of each kind, so many bytes of all. Counts the rest."""

    def __init__(
        self, lines_per_minute: int, kb_per_minute: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines, self._bytes, self._clock = lines_per_minute, 1000 * kb_per_minute, clock
        self._windows: dict[str, _Window] = {}
        self._of_all = _Window(clock())  # `written` counts bytes here

    def over(self) -> list[tuple[str, int]]:
        """The kinds whose minute is over and of which lines were left out, and how many; forgets them."""
        now = self._clock()
        done = {kind: found for kind, found in self._windows.items() if found.begin + WINDOW_S <= now}
        for kind in done:
            del self._windows[kind]
        return [(kind, found.left_out) for kind, found in done.items() if found.left_out]

    def admits(self, kind: str) -> bool:
        """Whether one more line of a kind may be written; if not, it is counted."""
        found = self._window(kind)
        if found.written < self._lines:
            return True
        found.left_out += 1
        return False

    def admits_size(self, kind: str, size: int) -> bool:
        """Whether a line of so many bytes may be written, too; counts it in any case."""
        now, found = self._clock(), self._window(kind)
        if self._of_all.begin + WINDOW_S <= now:
            self._of_all = _Window(now)
        if found.written >= ALWAYS and self._of_all.written + size > self._bytes:
            found.left_out += 1
            return False
        found.written += 1
        self._of_all.written += size
        return True

    def leave_out(self, kind: str) -> None:
        """Count a line that could not be written."""
        self._window(kind).left_out += 1

    def _window(self, kind: str) -> _Window:
        if kind not in self._windows and len(self._windows) >= MAX_KINDS:
            kind = "other"
        return self._windows.setdefault(kind, _Window(self._clock()))


class LimitedHandler(logging.Handler):
    """Writes what `limit` admits to a stream, in a thread of its own: a stream that is stuck stops nobody.

    Of the rest it tells the number: `lines_left_out kind=... count=... seconds=60`.
    """

    def __init__(self, stream: IO[str], limit: LogLimit) -> None:
        super().__init__()
        self._stream, self._limit = stream, limit
        self._waiting: queue.Queue[str] = queue.Queue(QUEUED)
        threading.Thread(target=self._write_for_ever, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless there were too many of its kind; before it, tell how many were left out."""
        try:
            self.tell_left_out()
            self._put(_kind(record), record)
        except Exception:  # noqa: BLE001  as every handler of logging does
            self.handleError(record)

    def tell_left_out(self) -> None:
        """Write for each kind how many of its lines the last minute has left out."""
        self.acquire()
        try:
            for kind, count in self._limit.over():
                self._put("lines_left_out", _left_out(kind, count))
        finally:
            self.release()

    def flush(self) -> None:
        """Wait until all lines are written, for some seconds at most."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, FLUSH_S)

    def _put(self, kind: str, record: logging.LogRecord) -> None:
        if not self._limit.admits(kind):
            return
        text = self.format(record) + "\n"
        if self._limit.admits_size(kind, len(text)):
            try:
                self._waiting.put_nowait(text)
            except queue.Full:
                self._limit.leave_out(kind)

    def _write_for_ever(self) -> None:
        while True:
            text = self._waiting.get()
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):  # nobody reads, or the disk is full: there is nothing to tell it to
                pass
            finally:
                self._waiting.task_done()


def _left_out(kind: str, count: int) -> logging.LogRecord:
    """The line that stands for lines of a kind that were left out."""
    fields = {"kind": kind, "count": count, "seconds": int(WINDOW_S)}
    said = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING"}
    return logging.makeLogRecord(
        {**said, "msg": "lines_left_out", "event": "lines_left_out", "fields": fields}
    )


def _kind(record: logging.LogRecord) -> str:
    """What counts as one kind; the text of a message does not matter, as users can influence it."""
    event = getattr(record, "event", None)
    if event is None:
        return f"{record.name}:{record.lineno}"
    fields = getattr(record, "fields", {})
    return ":".join([event, *(str(fields[key]) for key in ("bound", "part") if key in fields)])
