"""The daemon's log is bounded, and waits for nobody."""

from __future__ import annotations

import io
import logging
import os
import re
import threading
from collections.abc import Iterator

import pytest

from bftrainer.telemetry.log import LINES_OF_A_KIND, QUEUED, QueuedHandler, RateFilter, Text, note

MOST = 20


class Written:
    """A logger with a bound, a clock that is set by hand, and what was written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.out = io.StringIO()
        self.handler = logging.StreamHandler(self.out)
        self.handler.addFilter(RateFilter(MOST, lambda: self.now))
        self.handler.setFormatter(Text())
        self.log = logging.getLogger("bftrainer.test_of_the_log")
        monkeypatch.setattr(self.log, "propagate", False)
        self.log.setLevel(logging.DEBUG)
        self.log.addHandler(self.handler)

    def lines(self, word: str = "") -> list[str]:
        return [line for line in self.out.getvalue().splitlines() if word in line]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    made = Written(monkeypatch)
    yield made
    made.log.removeHandler(made.handler)


def test_of_each_kind_only_so_many_lines_are_written_and_the_rest_is_counted(written: Written) -> None:
    for n in range(1254):
        note(written.log, "bound_hit", logging.WARNING, bound="max_connections", by=f"uid {n}")
    note(written.log, "bound_hit", logging.WARNING, bound="reads")
    note(written.log, "ready")
    assert len(written.lines("max_connections")) == MOST
    assert len(written.lines("bound=reads")) == len(written.lines("ready")) == 1
    written.now = 60.0
    note(written.log, "ready")
    (told,) = written.lines("lines_left_out")
    assert re.search(r"WARNING lines_left_out kind=bound_hit:max_connections count=1234$", told)
    for _ in range(30):
        note(written.log, "bound_hit", bound="max_connections")
    assert len(written.lines("bound_hit bound=max_connections")) == 2 * MOST, "a new minute"


def test_messages_are_of_one_kind_by_the_place_that_writes_them(written: Written) -> None:
    for n in range(100):
        written.log.warning(f"a text that a user has chosen: {n}")
        if n < 5:
            written.log.warning("another: %s", n)
    assert len(written.lines("has chosen")) == MOST and len(written.lines("another")) == 5


def queued(stream: object) -> tuple[logging.Logger, QueuedHandler]:
    """A logger whose lines a thread writes to `stream`."""
    log, handler = logging.Logger("bftrainer.test", logging.DEBUG), QueuedHandler(stream)  # type: ignore[arg-type]
    handler.setFormatter(Text())
    log.addHandler(handler)
    return log, handler


def test_a_stream_that_takes_nothing_keeps_nobody_waiting() -> None:
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb") as reader, os.fdopen(writes, "w") as stream:
        log, handler = queued(stream)
        for _ in range(5 * QUEUED):  # much more than a pipe holds: without a thread, this would never end
            note(log, "x", reason="y" * 100)
        drained = threading.Thread(target=reader.read)
        drained.start()
        handler.flush()
        stream.close()
        drained.join(60)
        assert not drained.is_alive()


def test_a_traceback_is_written_with_its_marks() -> None:
    out = io.StringIO()
    log, handler = queued(out)
    try:
        raise ValueError("a\nb=c")
    except ValueError:
        log.exception("it failed")
    handler.flush()
    first, *rest = out.getvalue().splitlines()
    assert first.endswith("ERROR it failed") and rest and all(line.startswith("  | ") for line in rest)


class Full(io.StringIO):
    """A stream on a disk that is full for its first line."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            self.full = False
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_after_a_line_that_could_not_be_written_the_next_ones_are(capsys: pytest.CaptureFixture[str]) -> None:
    out = Full()
    log, handler = queued(out)
    for text in ("lost", "came"):
        log.warning(text)
        handler.flush()
    assert out.getvalue().endswith("WARNING came\n") and "lost" not in out.getvalue()


def test_the_bound_leaves_room_for_each_kind() -> None:
    assert LINES_OF_A_KIND < QUEUED
