"""The daemon's log is bounded, and waits for nobody."""

from __future__ import annotations

import io
import logging
import os
import re
import threading
from collections.abc import Iterator

import pytest

from bftrainer.telemetry.log import Text, note
from bftrainer.telemetry.log_limit import ALWAYS, MAX_KINDS, QUEUED, LimitedHandler, LogLimit


class Written:
    """A logger with limits, a clock that is set by hand, and what was written."""

    def __init__(self, lines: int = 20, kb: int = 1000) -> None:
        self.now = 0.0
        self.out = io.StringIO()
        self.handler = LimitedHandler(self.out, LogLimit(lines, kb, lambda: self.now))
        self.handler.setFormatter(Text())
        self.log = logging.Logger("bftrainer.test", logging.DEBUG)
        self.log.addHandler(self.handler)

    def lines(self, word: str = "") -> list[str]:
        self.handler.flush()
        return [line for line in self.out.getvalue().splitlines() if word in line]


@pytest.fixture
def written() -> Iterator[Written]:
    made = Written()
    yield made
    made.log.removeHandler(made.handler)


def test_of_each_kind_only_so_many_lines_are_written_and_the_rest_is_counted(written: Written) -> None:
    for n in range(1254):
        note(written.log, "bound_hit", logging.WARNING, bound="max_connections", by=f"uid {n}")
    note(written.log, "bound_hit", logging.WARNING, bound="reads")
    note(written.log, "ready")
    assert len(written.lines("max_connections")) == 20
    assert len(written.lines("bound=reads")) == len(written.lines("ready")) == 1
    written.now = 60.0
    note(written.log, "ready")
    (told,) = written.lines("lines_left_out")
    assert re.search(r"WARNING lines_left_out kind=bound_hit:max_connections count=1234 seconds=60$", told)
    for _ in range(30):
        note(written.log, "bound_hit", bound="max_connections")
    assert len(written.lines("bound_hit bound=max_connections")) == 40, "a new minute"


def test_messages_are_of_one_kind_by_the_place_that_writes_them(written: Written) -> None:
    for n in range(100):
        written.log.warning(f"a text that a user has chosen: {n}")
        if n < 5:
            written.log.warning("another: %s", n)
    assert len(written.lines("has chosen")) == 20 and len(written.lines("another")) == 5


def test_what_was_left_out_is_told_without_another_line(written: Written) -> None:
    for _ in range(30):
        note(written.log, "x")
    written.now = 61.0
    written.handler.tell_left_out()
    assert written.lines()[-1].endswith("lines_left_out kind=x count=10 seconds=60")


def test_all_lines_together_are_bounded_and_rare_kinds_are_written_all_the_same() -> None:
    written = Written(lines=1000, kb=50)
    for _ in range(1000):
        note(written.log, "long", reason="x" * 1000)
    assert 48_000 < sum(len(line) + 1 for line in written.lines()) <= 50_000
    for _ in range(1000):
        note(written.log, "degraded", logging.ERROR, part="store", reason="y" * 1000)
    assert len(written.lines("degraded")) == ALWAYS
    written.now = 60.0
    note(written.log, "degraded", logging.ERROR, part="scheduler")
    assert len(written.lines("part=scheduler")) == 1
    before = len(written.lines("long"))
    for _ in range(1000):
        note(written.log, "long", reason="z" * 1000)
    assert len(written.lines("long")) > before + 2 * ALWAYS, "a new minute, with its own bytes"


def test_kinds_without_end_take_bounded_memory_and_the_last_ones_are_limited_together() -> None:
    now = [0.0]
    limit = LogLimit(20, 1000, lambda: now[0])
    for n in range(MAX_KINDS + 50):
        if limit.admits(f"kind {n}"):
            limit.admits_size(f"kind {n}", 10)
    assert len(limit._windows) == MAX_KINDS + 1
    now[0] = 60.0
    assert limit.over() == [("other", 30)] and not limit._windows


def test_a_stream_that_takes_nothing_keeps_nobody_waiting() -> None:
    reads, writes = os.pipe()
    log = logging.Logger("bftrainer.test", logging.DEBUG)
    with os.fdopen(reads, "rb") as reader, os.fdopen(writes, "w") as stream:
        handler = LimitedHandler(stream, LogLimit(100_000, 1_000_000))
        handler.setFormatter(Text())
        log.addHandler(handler)
        for _ in range(10_000):  # much more than a pipe holds: without a thread, this would never end
            note(log, "x", reason="y" * 100)
        drained = threading.Thread(target=reader.read)
        drained.start()
        handler.flush()
        stream.close()
        drained.join(60)
        assert not drained.is_alive()


class Stuck(io.StringIO):
    """A stream that takes nothing until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def write(self, text: str) -> int:
        self.go_on.wait(60)
        return super().write(text)


def test_lines_that_a_stuck_stream_did_not_take_are_counted() -> None:
    written, stuck = Written(), Stuck()
    written.handler = LimitedHandler(stuck, LogLimit(2 * QUEUED, 10_000, lambda: written.now))
    written.handler.setFormatter(Text())
    written.log.handlers = [written.handler]
    for _ in range(QUEUED + 100):
        note(written.log, "x")
    stuck.go_on.set()
    written.handler.flush()
    came = stuck.getvalue().count("\n")
    written.now = 60.0
    written.handler.tell_left_out()
    written.handler.flush()
    assert f"lines_left_out kind=x count={QUEUED + 100 - came} " in stuck.getvalue()


class Full(io.StringIO):
    """A stream on a disk that is full for its first line."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            self.full = False
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_after_a_line_that_could_not_be_written_the_next_ones_are() -> None:
    written, out = Written(), Full()
    written.log.handlers = [LimitedHandler(out, LogLimit(20, 1000))]
    for text in ("lost", "came"):
        written.log.warning(text)
        written.log.handlers[0].flush()
    assert out.getvalue() == "came\n"


def test_a_stream_that_fails_is_no_failure(written: Written) -> None:
    written.out.close()
    note(written.log, "x")
    written.handler.flush()
