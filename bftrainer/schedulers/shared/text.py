"""The error of all parsers of commands."""

from __future__ import annotations


class TextError(ValueError):
    """What a command printed is not what it prints when it works."""
