"""Every command is in a file of its own, explains itself, and prints JSON if it prints anything."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import bftrainer.cli
from bftrainer.cli import COMMANDS, app

FOLDER = Path(bftrainer.cli.__file__).parent
WITHOUT_JSON = {"daemon", "pilot", "record", "study mirrors", "trace convert", "trace synth"}
"""Commands that print no figures: a log, a batch script, or files."""


def leaves(group: click.Group, prefix: str = "") -> dict[str, click.Command]:
    """All commands below a group, by the words that call them."""
    context, found = click.Context(group), {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= leaves(command, f"{prefix}{name} ")
        else:
            found[f"{prefix}{name}"] = command
    return found


EVERY = leaves(app)


@pytest.mark.parametrize("words", EVERY)
def test_a_command_explains_itself(words: str) -> None:
    done = CliRunner().invoke(app, [*words.split(), "--help"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("Usage: ")
    for parameter in EVERY[words].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"bftrainer {words} {parameter.opts[0]}"


@pytest.mark.parametrize("words", EVERY)
def test_a_command_that_prints_figures_prints_json(words: str) -> None:
    options = {name for parameter in EVERY[words].params for name in parameter.opts}
    assert ("--json" in options) is (words not in WITHOUT_JSON)


def test_the_list_of_commands_is_that_of_the_files() -> None:
    files = {path.name.removesuffix("_command.py") for path in FOLDER.glob("*_command.py")}
    assert files == set(COMMANDS)


def test_an_unknown_command_is_refused() -> None:
    done = CliRunner().invoke(app, ["trian"])
    assert done.exit_code == 2
    assert "trian" in done.output
