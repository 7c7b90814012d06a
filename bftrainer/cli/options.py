"""Options that several commands share, and how they become Settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from bftrainer import settings
from bftrainer.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def setting_options(*names: str) -> Callable[[F], F]:
    """An option for each named setting, with its help and default, plus `--config`."""

    def decorate(command: F) -> F:
        for name in reversed(names):
            field = Settings.model_fields[name]
            shown = field.get_default(call_default_factory=True)
            command = click.option(
                f"--{name.removesuffix('_s').replace('_', '-')}",
                name,
                default=None,
                metavar="SECONDS" if name.endswith("_s") else name.upper(),
                help=f"{(field.description or '').capitalize()}  [default: {shown}]",
            )(command)
        return click.option(
            "--config", type=click.Path(path_type=Path, dir_okay=False), help="File with settings (YAML)."
        )(command)

    return decorate


def load_settings(config: Path | None, overrides: dict[str, Any]) -> Settings:
    return settings.load(overrides, file=config)


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))
