"""Log lines: one an event, with fields that nobody can forge."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.telemetry.log import Logfmt, Text, names, note, read_by_journald

FIELD = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"=]+)(?: |$)')


def lines(formatter: logging.Formatter, *, fail: BaseException | None = None, **fields: object) -> list[str]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    logger = logging.Logger("bftrainer.test", logging.DEBUG)
    logger.addHandler(handler)
    if fail is not None:
        try:
            raise fail
        except type(fail):
            logger.exception("it broke: %s", fields.get("reason"))
    else:
        note(logger, "nodes_changed", logging.INFO, **fields)
    return out.getvalue().splitlines()


def parsed(line: str) -> dict[str, str]:
    """As any reader of logfmt would."""
    rest, found = line[3:], {}
    while rest:
        match = FIELD.match(rest)
        assert match, rest
        name, value = match.groups()
        assert name not in found, f"{name} twice"
        found[name] = json.loads(value) if value.startswith('"') else value
        rest = rest[match.end() :]
    return found


def test_an_event_is_a_line_of_fields_with_a_priority_for_journald() -> None:
    (line,) = lines(Logfmt(), joined=3, left=None, reason="poll", solve_ms=1.23456789, proven=True, note="")
    assert line == "<6>event=nodes_changed joined=3 reason=poll solve_ms=1.23457 proven=true"


def test_people_get_the_same_with_the_time() -> None:
    (line,) = lines(Text(), joined=3, reason="two words")
    assert re.fullmatch(r'\d{4}-\d\d-\d\d \S+ INFO nodes_changed joined=3 reason="two words"', line)


@pytest.mark.parametrize(
    ("level", "priority"),
    [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3), (logging.CRITICAL, 2)],
)
def test_priorities_are_syslogs(level: int, priority: int) -> None:
    record = logging.LogRecord("bftrainer.x", level, __file__, 1, "no %s", ("pilot",), None)
    said = f'<{priority}>event=message logger=bftrainer.x msg="no pilot"'
    assert Logfmt().format(record) == said


HOSTILE = 'x\n<0>event=ready admin="root" \x1b[2J \x7f\x85\u2028 \ud800 \\" user=root'


@given(st.one_of(st.just(HOSTILE), st.text(), st.text(alphabet='\n\r"\\= \x00<>ae')))
def test_no_text_can_forge_a_line_or_a_field(reason: str) -> None:
    (line,) = lines(Logfmt(), reason=reason, user="alice")
    wanted = {"event": "nodes_changed", "reason": reason, "user": "alice"}
    assert parsed(line) == {name: value for name, value in wanted.items() if value}
    assert line.isascii()
    assert line.isprintable()
    (line,) = lines(Text(), reason=reason)
    assert line.isprintable()


@given(st.text(min_size=1))
def test_messages_and_tracebacks_forge_nothing_either(reason: str) -> None:
    (line,) = lines(Logfmt(), fail=ValueError(reason), reason=reason)
    found = parsed(line)
    assert (found["event"], found["msg"]) == ("message", f"it broke: {reason}")
    assert "ValueError" in found["exc"]
    first, *trace = lines(Text(), fail=ValueError(reason), reason=reason)
    assert re.search(r' ERROR "?it broke: ', first)
    assert all(line.startswith("  | ") for line in trace)


@pytest.mark.parametrize(
    "said", ["level=ERROR order=drain user=root", 'a" level=ERROR user=root "', "ended\n level=ERROR \u202e"]
)
def test_the_texts_of_free_messages_are_no_fields_for_people_either(said: str) -> None:
    record = logging.LogRecord(
        "x", logging.INFO, __file__, 1, "trainer %d lost its worker: %s", (7, said), None
    )
    line = Text().format(record)
    quoted = line.partition(" INFO ")[2]
    assert json.loads(quoted) == f"trainer 7 lost its worker: {said}", "one text in quotes, and nothing else"
    assert line.isprintable()
    record = logging.LogRecord(
        "x", logging.INFO, __file__, 1, "trainer %d lost its worker: %s", (7, "a b"), None
    )
    assert Text().format(record).endswith(" INFO trainer 7 lost its worker: a b")


def test_lines_stay_shorter_than_journald_cuts_them() -> None:
    long = "\U0001f600\x00" * 100_000
    (line,) = lines(Logfmt(), reason=long, why=long)
    assert parsed(line)["reason"].startswith("\U0001f600\x00")
    (trace,) = lines(Logfmt(), reason=long, fail=ValueError(long))
    assert parsed(trace)["exc"].startswith("Traceback")
    assert max(len(line), len(trace)) < 48 * 1024


def test_of_many_nodes_the_first_are_named() -> None:
    assert names([]) is None
    assert names({"n2", "n1"}) == "n1,n2"
    assert names(f"n{i:03}" for i in range(50)) == ",".join([f"n{i:03}" for i in range(20)] + ["+30"])


def test_journald_is_recognised_by_the_stream_that_it_reads(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as stream:
        found = os.fstat(stream.fileno())
        assert read_by_journald(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
        assert not read_by_journald(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"})
        assert not read_by_journald(stream, {})
    assert not read_by_journald(io.StringIO(), {"JOURNAL_STREAM": "1:2"})
