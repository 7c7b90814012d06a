"""However a command fails, it ends with lines that a terminal can show, and an exit code."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

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
        (KeyError("a\nb"), 70, "bftrainer failed at this (KeyError: 'a\\nb'); please report it"),
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


def offered(monkeypatch: pytest.MonkeyPatch, answer: object, typed: str = "") -> list[CompletionItem]:
    class Client:
        def call(self, method: str, path: str) -> object:
            return answer

    def connect(config: Path | None, state_dir: str | None, patience_s: float) -> Client:
        assert patience_s <= 3
        return Client()

    monkeypatch.setattr(completion, "connect", connect)
    context = click.Context(click.Command("show"))
    argument = click.Argument(["trainer"])
    return [
        *completion.complete_trainer(context, argument, typed),
        *completion.complete_node(context, argument, typed),
    ]
