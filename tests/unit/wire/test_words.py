"""What an agent takes from its worker, whose script may write anything, and what it makes of texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bftrainer.wire.messages.from_agent import Broken, Progress, read
from bftrainer.wire.parse import MAX_DEPTH, parse
from bftrainer.wire.words import MAX_NAME, MAX_TEXT, heard

AT = {"generation": 3, "step": 5, "samples": 6, "epoch": 0, "size": 4, "rate": None}


def through(message: dict[str, Any]) -> Any:
    """What the daemon reads of a worker's message that its agent has taken."""
    report = read(
        {"type": "worker", "trainer": 1, "started": 2, "run": 0, "said": heard(json.dumps(message).encode())}
    )
    assert report is not None
    return report.said


def test_a_traceback_with_odd_bytes_arrives_on_one_line_and_cut() -> None:
    reason = "Traceback:\n  File \x1b[31mx\x00\udcff\n" + "gloo " * 1000
    broken = through({"type": "broken", "generation": 3, "reason": reason})
    assert isinstance(broken, Broken) and len(broken.reason) == MAX_TEXT
    assert (
        broken.reason.startswith(r"Traceback:\n  File \x1b[31mx\x00\udcff\ngloo") and broken.reason[-1] == "."
    )


def test_odd_names_of_metrics_arrive_printable() -> None:
    metrics = {"loss\n": 0.5, "\ud800": 1.0, "n" * 1000: 2.0}
    progress = through({"type": "progress", **AT, "metrics": metrics})
    assert isinstance(progress, Progress)
    assert progress.metrics == {r"loss\n": 0.5, r"\ud800": 1.0, "n" * (MAX_NAME - 3) + "...": 2.0}


def test_odd_warnings_arrive_printable() -> None:
    warned = ["two\nlines", "red \x1b[31m", "w" * 9999]
    progress = through({"type": "progress", **AT, "metrics": {}, "warned": warned})
    assert progress.warned == [r"two\nlines", r"red \x1b[31m", "w" * (MAX_TEXT - 3) + "..."]


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[1]\n",
        b"{}\n",
        b'{"type": []}\n',
        *(
            b'{"type": "%s", "code": 1}\n' % kind
            for kind in (b"exited", b"bye", b"hello", b"worker", b"exit")
        ),
        b'{"type": "joined", "generation": "3"}\n',
        b'{"type": "joined", "generation": []}\n',
        b'{"type": "kv", "key": %s}\n' % (b"[" * 250 + b"]" * 250),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"type": "ready", "n": %s}\n' % (b"9" * 5000),
        b"\xff\xfe\n",
    ],
    ids=lambda line: line[:30].decode(errors="replace"),
)
def test_nothing_else_is_taken(line: bytes) -> None:
    with pytest.raises(ValueError):
        heard(line)


def test_a_message_is_an_object_of_bounded_depth() -> None:
    def nested(depth: int) -> str:
        return '{"a":' + "[" * (depth - 1) + "]" * (depth - 1) + "}"

    assert parse(nested(MAX_DEPTH)).keys() == {"a"}
    for text in (nested(MAX_DEPTH + 1), nested(500), nested(100_000), '{"a": "b"} c', '"a"', "3", ""):
        with pytest.raises(ValueError):
            parse(text)
