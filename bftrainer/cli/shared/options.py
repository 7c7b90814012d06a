"""Options that several commands share, how they become Settings, and how tables are printed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from bftrainer.errors import BftrainerError
from bftrainer.settings.daemon import SOCKET
from bftrainer.settings.setting import facts
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings
from bftrainer.traces.logs import FORMATS, LogOptions

if TYPE_CHECKING:
    from bftrainer.api.client import Client

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def setting_options(*names: str) -> Callable[[F], F]:
    """An option for each named setting, with its help and default, plus `--config`."""

    def decorate(command: F) -> F:
        for name in reversed(names):
            field, setting = Settings.model_fields[name], facts(Settings)[name]
            shown = field.get_default(call_default_factory=True, validated_data={})
            if shown is None:
                shown = setting.none_word
            if isinstance(shown, Path):
                shown = str(shown).replace(str(Path.home()), "~", 1)
            only = get_origin(field.annotation) is Literal
            choices = [str(choice) for choice in get_args(field.annotation)] if only else []
            command = click.option(
                f"--{name.removesuffix('_s').replace('_', '-')}",
                name,
                default=None,
                type=click.Choice(choices) if choices else None,
                metavar=None if choices else "SECONDS" if setting.unit == "s" else name.upper(),
                help=f"{setting.help[:1].upper()}{setting.help[1:]}.  [default: {shown}]",
            )(command)
        return click.option(
            "--config", type=click.Path(path_type=Path, dir_okay=False), help="File with settings (YAML)."
        )(command)

    return decorate


def load_settings(config: Path | None, overrides: dict[str, Any]) -> Settings:
    return load(overrides, file=config)


def client_options(command: F) -> F:
    """What every command that talks to a daemon takes."""
    return json_option(setting_options("state_dir")(command))


def connect(config: Path | None, state_dir: str | None) -> Client:
    """The client of the daemon that the settings name; of the one in `state_dir`, if that is given."""
    from bftrainer.api.client import Client
    from bftrainer.api.munge import Munge

    own = load_settings(config, {"state_dir": state_dir})
    if state_dir is not None:
        return Client(own.state_dir / SOCKET)
    if own.server is not None:
        return Client(own.server, Munge(own.munge_socket))
    return Client(own.socket)


def complete_trainer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tab completion of trainers' names; silent where no daemon answers."""
    found = _known(ctx, "trainers") or []
    return [CompletionItem(t["name"], help=t["status"]) for t in found if t["name"].startswith(incomplete)]


def complete_node(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tab completion of nodes' names; silent where no daemon answers."""
    rows = (_known(ctx, "pool") or {"nodes": []})["nodes"]
    return [
        CompletionItem(n["node"], help=n["why"] or n["state"])
        for n in rows
        if n["node"].startswith(incomplete)
    ]


def _known(ctx: click.Context, what: str) -> Any:
    """What the daemon answers while a command is typed; None where none does."""
    try:
        return connect(ctx.params.get("config"), ctx.params.get("state_dir")).call("GET", what)
    except BftrainerError:
        return None


trainer_argument = click.argument("trainer", shell_complete=complete_trainer)


def parse_utc(text: str | None) -> float | None:
    """An ISO time, UTC unless it names a zone, as Unix seconds."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time; write it like 2021-02-11T00:48:48 (UTC)", param_hint="--from"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class Finite(click.FloatRange):
    """A number within bounds; NaN, which no comparison finds outside, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


class Positive(Finite):
    """A number above 0, finite."""

    def __init__(self, least: float = 0.0, most: float = 1e9) -> None:
        super().__init__(min=least, min_open=not least, max=most)


class Output(click.Path):
    """A file, or with `file_okay=False` a folder, that is to be written: into a folder that is there."""

    def __init__(self, *suffixes: str, file_okay: bool = True) -> None:
        super().__init__(path_type=Path, file_okay=file_okay, dir_okay=not file_okay, writable=True)
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not os.path.isdir(path.parent):  # noqa: PTH112  Path's raises where one may not look
            self.fail(f"{path}: there is no folder {path.parent}; make it first", param, ctx)
        if not os.path.lexists(path) and not os.access(path.parent, os.W_OK):
            self.fail(f"{path}: the folder {path.parent} cannot be written; choose another", param, ctx)
        if self.suffixes and not path.name.endswith(self.suffixes):
            self.fail(f"{path}: its name must end in {' or '.join(self.suffixes)}", param, ctx)
        return path


def log_options(command: F) -> F:
    """How a log is to be read; the command gets one `log_options: LogOptions`."""

    @wraps(command)
    def merged(
        *args: Any,
        log_format: str | None,
        machine_nodes: int | None,
        cores_per_node: int,
        min_gap: float,
        max_broken: float,
        **others: Any,
    ) -> Any:
        chosen = LogOptions(log_format, machine_nodes, cores_per_node, min_gap, max_broken)
        return command(*args, log_options=chosen, **others)

    options = (
        click.option(
            "--format",
            "log_format",
            type=click.Choice(list(FORMATS)),
            help="Format of the log.  [default: told from its content]",
        ),
        click.option(
            "--machine-nodes",
            type=click.IntRange(1, 1_000_000),
            help="Nodes of the machine.  [default: what the log says or names]",
        ),
        click.option(
            "--cores-per-node",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="How many processors of an SWF log make a node.",
        ),
        click.option(
            "--min-gap",
            type=Finite(min=0.0),
            default=0.0,
            show_default=True,
            metavar="SECONDS",
            help="Leave out what is idle for less: the turn from one job to the next.",
        ),
        click.option(
            "--max-broken",
            type=Finite(min=0.0, max=1.0),
            default=0.01,
            show_default=True,
            metavar="SHARE",
            help="Refuse the log if more than this share of its lines cannot be understood.",
        ),
    )
    decorated: Any = merged
    for option in reversed(options):
        decorated = option(decorated)
    found: F = decorated
    return found


def print_json(value: object) -> None:
    """JSON has no NaN and no infinity: they become null."""
    click.echo(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "") -> None:
    """A plain table; `empty` is what to say where there is nothing to show."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows and empty:
        click.echo(empty)
        return
    table = Table(box=None, pad_edge=False, show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    Console().print(table)
