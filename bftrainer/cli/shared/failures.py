"""Ends a command that failed: with lines that say what went wrong, and an exit code."""

from __future__ import annotations

import click

from bftrainer.cli.shared.terminal import say
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NO_MEMORY, OWN_FAULT, SYSTEM_REFUSES
from bftrainer.model.text import cut

USER, USAGE, OURS, INTERRUPTED = 1, 2, 70, 130
MOST_CHARACTERS = 2000
"""Characters of a line of an error that are shown."""
MOST_LINES = 100
"""Lines shown of an error, at most."""


def tell(error: BaseException) -> int:
    """Print on standard error what went wrong; return the exit code."""
    if isinstance(error, click.ClickException):
        return _tell_usage(error)
    if isinstance(error, click.Abort):
        say("interrupted", err=True)
        return INTERRUPTED
    if isinstance(error, BftrainerError):
        _lines(str(error) or type(error).__name__)
        return USER
    if isinstance(error, MemoryError):
        _lines(NO_MEMORY.say())
        return USER
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        _lines(SYSTEM_REFUSES.ends(f"{where}{error.strerror or error or type(error).__name__}"))
        return USER
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    _lines(OWN_FAULT.say(said=said))
    return OURS


def _tell_usage(error: click.ClickException) -> int:
    """Print click's message; a file's name in it may have control characters."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if type(error).__name__ == "NoArgsIsHelpError":  # which older versions of click do not have
        say(error.format_message(), err=True)
        return error.exit_code
    if context is not None:
        say(context.get_usage(), err=True)
        say(f"Try '{context.command_path} {context.help_option_names[-1]}' for help.\n", err=True)
    _lines(error.format_message())
    return error.exit_code


def _lines(text: str) -> None:
    lines = text.splitlines()
    for line in lines[:MOST_LINES]:
        say(f"error: {cut(line, MOST_CHARACTERS)}", err=True)
    if len(lines) > MOST_LINES:
        say(f"error: and {len(lines) - MOST_LINES:,} lines more", err=True)
