"""Types of options: numbers within bounds, times, and files that a command is to write."""

from __future__ import annotations

import math
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bftrainer.messages.commands.lines import NO_TIME
from bftrainer.model.text import span_s

MOST_SPAN_S = 366 * 86_400.0
TRAINER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def parse_utc(text: str | None) -> float | None:
    """Read an ISO time, UTC unless it names a zone, and return Unix seconds; None stays None.

    Raises:
        BadParameter: The text is no ISO time.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):  # in UTC it may lie before the first year, or after the last
        raise click.BadParameter(NO_TIME.say(given=text), param_hint="--from") from None


class Finite(click.FloatRange):
    """A number within bounds. NaN, which passes every comparison with a bound, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; refuse one that is NaN or out of bounds, as click does."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


class Positive(Finite):
    """A number above 0, or from `least` on, up to `most`."""

    def __init__(self, least: float = 0.0, most: float = 1e9) -> None:
        super().__init__(min=least, min_open=not least, max=most)


class Span(click.ParamType[float]):
    """A time span such as 90s, 30m, 2h or 1d, or a number of seconds; above 0 and at most a year."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; refuse what is no span."""
        seconds = span_s(str(value)) or 0.0
        if not 0 < seconds <= MOST_SPAN_S:
            self.fail(f"{ascii(value)[:100]} is no time span; give 90s, 30m, 2h or 1d", param, ctx)
        return seconds


class _Named(click.Path):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; refuse one that click refuses, or that no file can have."""
        try:
            return super().convert(value, param, ctx)
        except ValueError as error:  # such as a NUL
            self.fail(f"{value!r} is no name of a file: {error}", param, ctx)


class Input(_Named):
    """A file to read, or with `dir_okay` a folder; it must exist."""

    def __init__(self, *, file_okay: bool = True, dir_okay: bool = False, exists: bool = True) -> None:
        super().__init__(path_type=Path, exists=exists, file_okay=file_okay, dir_okay=dir_okay)


class TrainerName(click.ParamType[str]):
    """A trainer's name or number: what a spec allows as a name, and not another part of the API's paths."""

    name = "trainer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; refuse what none can be."""
        if not TRAINER.fullmatch(str(value)):
            quoted = ascii(value)[:100]
            self.fail(f"{quoted} is no trainer's name or number; bftrainer list shows them", param, ctx)
        return str(value)


class OutputPath(_Named):
    """A file to write, or a folder with `file_okay=False`; the folder above it must exist.

    With `suffixes`, the name must end in one of them.
    """

    def __init__(self, *suffixes: str, file_okay: bool = True) -> None:
        super().__init__(path_type=Path, file_okay=file_okay, dir_okay=not file_okay, writable=True)
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; refuse one that cannot be written, before the command does its work."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not os.path.isdir(path.parent):  # noqa: PTH112  Path.is_dir raises where the user may not read
            self.fail(f"{path}: there is no folder {path.parent}; make it first", param, ctx)
        if not os.path.lexists(path) and not os.access(path.parent, os.W_OK):
            self.fail(f"{path}: the folder {path.parent} cannot be written; choose another", param, ctx)
        if self.suffixes and not path.name.endswith(self.suffixes):
            self.fail(f"{path}: its name must end in {' or '.join(self.suffixes)}", param, ctx)
        return path
