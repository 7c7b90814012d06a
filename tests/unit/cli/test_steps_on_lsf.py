"""The steps of docs/admin-lsf.md: the commands and options that they name exist, and so do the files."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from bftrainer.cli import app

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "admin-lsf.md").read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"^```(?:sh)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [
    words[1:]
    for line in LINES
    for words in [shlex.split(line.partition(" >")[0], comments=True)]
    if words and Path(words[0]).name == "bftrainer"
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_has_the_options_that_a_step_gives_it(words: list[str]) -> None:
    command: click.Command = app
    context = click.Context(app)
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        found = command.get_command(context, rest.pop(0))
        assert found is not None, words
        command, context = found, click.Context(found, parent=context)
    command.make_parser(context).parse_args(rest)


def test_the_steps_name_files_that_are_there() -> None:
    named = {
        word.replace("/opt/bftrainer/share/bftrainer/", "")
        for line in LINES
        for word in line.split()
        if word.startswith(("lsf/", "trainers/", "/opt/bftrainer/share/"))
    }
    assert len(named) >= 6
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
