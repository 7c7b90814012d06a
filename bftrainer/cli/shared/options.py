"""Options that several commands share, and those that are made from the settings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from bftrainer.cli.shared.completion import complete_trainer
from bftrainer.cli.shared.types import Input, TrainerName
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.reaching import NO_DAEMONS_ANSWER

ODD_ANSWER = (TypeError, KeyError, IndexError, AttributeError, ValueError, OverflowError, RecursionError)
"""Errors that an answer of another form causes."""
ITS_FOLDER = "Ask the daemon with this folder.  [default: the daemon that the settings name]"
F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
config_option = click.option("--config", type=Input(exists=False), help="File with settings (YAML).")
state_dir_option = click.option("--state-dir", metavar="STATE_DIR", help=ITS_FOLDER)
trainer_argument = click.argument("trainer", type=TrainerName(), shell_complete=complete_trainer)


def setting_options(*names: str) -> Callable[[F], F]:
    """Return a decorator that adds `--config` and an option for each named setting, with help and default."""

    def decorate(command: F) -> F:
        """Add the options to a command."""
        for name in reversed(names):
            command = _setting_option(name)(command)
        return config_option(command)

    return decorate


def with_options(command: F, options: Sequence[Callable[[F], F]]) -> F:
    """Return a command with options, the first of them first in its help."""
    for option in reversed(options):
        command = option(command)
    return command


def given_parameters() -> set[str]:
    """Return the parameters that the command line gives to the present command, by name."""
    context = click.get_current_context()
    return {
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def option_of(name: str) -> str:
    """Return a parameter of the present command as users write it: `--option`, or an argument in capitals."""
    for known in click.get_current_context().command.params:
        if known.name == name:
            return known.human_readable_name if isinstance(known, click.Argument) else known.opts[0]
    return name


def _setting_option(name: str) -> Callable[[F], F]:
    """The option of a setting, with the setting's own help and default."""
    from bftrainer.settings.setting import choices_of, facts
    from bftrainer.settings.values import Settings

    field, setting = Settings.model_fields[name], facts(Settings)[name]
    shown = field.get_default(call_default_factory=True, validated_data={})
    if shown is None:
        shown = setting.none_word
    if isinstance(shown, Path):
        shown = str(shown).replace(str(Path.home()), "~", 1)
    choices = choices_of(field, setting)
    default = f"  [default: {shown}]" if str(shown) else ""
    return click.option(
        f"--{name.removesuffix('_s').replace('_', '-')}",
        name,
        default=None,
        type=click.Choice(choices) if choices else None,
        metavar=None if choices else "SECONDS" if setting.unit == "s" else name.upper(),
        help=f"{setting.help[:1].upper()}{setting.help[1:]}.{default}",
    )


def client_options(command: F) -> F:
    """Add the options of every command that talks to a daemon: `--config`, `--state-dir` and `--json`.

    An answer of another form than a daemon's is an error that the user reads, wherever it is noticed.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        """Run the command."""
        try:
            return command(*args, **kwargs)
        except BftrainerError:
            raise
        except ODD_ANSWER as error:
            said = f"{type(error).__name__}: {str(error)[:100]}"
            raise BftrainerError(NO_DAEMONS_ANSWER.say(where="there", said=said)) from error

    return json_option(daemon_options(cast(F, run)))


def daemon_options(command: F) -> F:
    """Add the options that say which daemon is meant: `--config` and `--state-dir`."""
    return config_option(state_dir_option(command))
