"""Every command is in a file of its own, explains itself, and prints JSON if it prints anything."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import bftrainer.cli
from bftrainer.cli import COMMANDS, app
from bftrainer.cli.shared.groups import ManyOptions

FOLDER = Path(bftrainer.cli.__file__).parent
WITHOUT_JSON = {"daemon", "pilot", "record", "study mirrors", "trace convert", "trace synth", "web"}
"""Commands that print no figures: a log, a batch script, files, or a page for a browser."""


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


@pytest.mark.parametrize("name", list(ManyOptions.FIRST))
def test_help_begins_with_the_ten_options_that_matter_first_and_has_all(name: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    first = ManyOptions.FIRST[name]
    assert len(first) == 10 and set(first) <= {param.name for param in command.params}
    head, _, rest = CliRunner().invoke(command, ["--help"]).output.partition("More options:")
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.opts[-1] in (head if param.name in first else rest), param.name
