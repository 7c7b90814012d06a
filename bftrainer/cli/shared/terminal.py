"""Prints text, with control characters escaped: others may have written it.

Names, reasons, metrics and messages may be any user's, and old databases may hold texts that are refused
today. A terminal obeys the control characters in them: it could show what is not there, or type.
"""

from __future__ import annotations

import click

from bftrainer.model.text import shown


def say(text: str = "", *, err: bool = False) -> None:
    """Print lines, on standard error with `err`; control characters in them are escaped, but not tabs."""
    lines = ("\t".join(shown(part) for part in line.split("\t")) for line in text.split("\n"))
    click.echo("\n".join(lines), err=err)


def say_as_it_is(text: str) -> None:
    """Print a line of the user's own, with whatever it contains."""
    click.echo(text)


def printable(value: object) -> str:
    """Return a value as one line of text, escaped as `say` does; a list as a line for each of its items."""
    if isinstance(value, list):
        return "\n".join(printable(item) for item in value)
    return "" if value is None else shown(str(value))
