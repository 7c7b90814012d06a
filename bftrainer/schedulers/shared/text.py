"""The error of all parsers of commands."""

from __future__ import annotations


class TextError(ValueError):
    """A command's output is not that of a working command."""
