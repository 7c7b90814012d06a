"""However a command fails, it ends with lines that a terminal can show, and an exit code."""

from __future__ import annotations

import errno
import json
import socket
import sys
import tempfile
import threading
from contextlib import suppress

import click
import pytest
from click.shell_completion import CompletionItem

import bftrainer.cli
from bftrainer.cli.shared import completion
from bftrainer.cli.shared.failures import MOST_CHARACTERS, MOST_LINES, tell
from bftrainer.errors import BftrainerError


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BftrainerError("no \x1b]0;x\x07"), 1, r"error: no \x1b]0;x\x07"),
        (BftrainerError(), 1, "error: BftrainerError"),
        (BftrainerError("x" * 10_000), 1, "x..."),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "error: No space left on device"),
        (OSError(errno.EIO, "Input/output error", "a\x1bb"), 1, r"error: a\x1bb: Input/output error"),
        (MemoryError(), 1, "not enough memory"),
        (click.Abort(), 130, "interrupted"),
        (click.UsageError("odd \x1b[31m"), 2, r"error: odd \x1b[31m"),
        (KeyError("a\nb"), 70, "bftrainer failed at this (KeyError: 'a\\nb'). Please report it"),
        (RecursionError("too deep"), 70, "RecursionError: too deep"),
    ],
)
def test_a_failure_is_one_line(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int, words: str
) -> None:
    assert tell(error) == code
    said = capsys.readouterr().err
    assert words in said and len(said.splitlines()) == 1 and len(said) < MOST_CHARACTERS + 20


def test_many_lines_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    tell(BftrainerError("x\n" * 1000))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MOST_LINES + 1 and lines[-1] == "error: and 900 lines more"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["status", "--nosuch\x1b"], 2, "Try 'bftrainer status --help' for help."),
        (["trace", "info", "a\x1b[31m"], 2, r"Path 'a\x1b[31m' does not exist."),
        (["show", ".."], 2, "'..' is no trainer's name or number; bftrainer list shows them"),
        (["show", "a/b"], 2, "'a/b' is no trainer's"),
        (["cancel", "\udcff"], 2, r"'\udcff' is no trainer's"),
        (["events", "--trainer", "x" * 5000], 2, "is no trainer's name"),
        (["list", "--state-dir", "/nosuch"], 1, "error: no daemon answers at /nosuch/daemon.sock"),
        ([], 2, "Usage: "),
        (["--help"], 0, ""),
    ],
)
def test_the_command_line_ends_so(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["bftrainer", *words])
    with pytest.raises(SystemExit) as end:
        bftrainer.cli.main()
    assert (end.value.code or 0) == code
    err = capsys.readouterr().err
    assert said in err and "\x1b" not in err and len(err) < 3000


def test_with_debug_the_traceback_follows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bftrainer", "--debug", "list", "--state-dir", "/nosuch"])
    with pytest.raises(SystemExit):
        bftrainer.cli.main()
    err = capsys.readouterr().err
    assert err.startswith("error: no daemon") and "Traceback" in err


@pytest.mark.parametrize(
    "answer",
    [None, 1, [], {}, [1], [{}], {"nodes": None}, {"nodes": [{"node": 1, "why": None, "state": "x"}]}],
)
def test_completion_is_silent_about_odd_answers(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    assert offered(monkeypatch, answer) == []


def test_completion_offers_what_a_shell_takes_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["good-1", "$(reboot)", "a;b", "a b", "\x1b[31m", "*", "a\nfile\nx", "-x", "good-2"]
    found = offered(monkeypatch, [{"name": name, "status": "\x1b[31m\nrunning"} for name in names], "good")
    assert [(item.value, item.help) for item in found] == [
        (name, r"\x1b[31m\nrunning") for name in ("good-1", "good-2")
    ]
    everything = offered(monkeypatch, [{"name": name, "status": ""} for name in names])
    assert [item.value for item in everything] == ["good-1", "good-2"]
    again = offered(monkeypatch, [{"name": "a", "status": status} for status in ("failed", "running")])
    assert [(item.value, item.help) for item in again] == [("a", "running")], "the last of its name"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 500 no\r\n\r\n",
        b"SSH-2.0\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 999,
        b"HTTP/1.1 200",
    ],
)
def test_completion_is_silent_about_what_is_no_daemon(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    assert offered(monkeypatch, raw) == []


def test_completion_waits_only_so_long_for_an_answer_that_trickles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "PATIENCE_S", 0.2)
    assert offered(monkeypatch, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[", trickles=True) == []


def offered(
    monkeypatch: pytest.MonkeyPatch, answer: object, typed: str = "", *, trickles: bool = False
) -> list[CompletionItem]:
    """What is offered where a daemon gives this answer, as JSON or as it is."""
    body = b"" if isinstance(answer, bytes) else json.dumps(answer).encode()
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/daemon.sock")
        listening.listen()
        over = threading.Event()

        def serve() -> None:
            for _ in range(1 if trickles else 2):
                with listening.accept()[0] as asked:
                    asked.recv(10_000)
                    with suppress(OSError):  # it has gone
                        asked.sendall(answer if isinstance(answer, bytes) else whole)
                    while trickles and not over.wait(0.05):
                        asked.sendall(b" ")

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        context = click.Context(click.Command("show"))
        context.params["state_dir"] = folder
        argument = click.Argument(["trainer"])
        found = completion.complete_trainer(context, argument, typed)
        if not trickles:
            found += completion.complete_node(context, argument, typed)
        over.set()
        return found
