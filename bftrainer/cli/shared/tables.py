"""How commands print what they found: as a table or as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from bftrainer.cli.shared.terminal import printable, say

SHORT = 14
"""A cell of one word that is no longer is never folded: numbers, a status."""


def print_json(value: object) -> None:
    """Print a value as JSON; NaN and infinity, which JSON does not have, become null."""
    say(json.dumps(_finite(value), indent=2, allow_nan=False).replace("\x7f", "\\u007f"))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_short(cell: str) -> bool:
    return len(cell) <= SHORT and not any(character.isspace() for character in cell)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "") -> None:
    """Print a plain table, without a header if all columns are ""; without rows, print `empty` instead.

    Control characters in cells are escaped; a cell of several lines is a list. Where the terminal is narrow,
    texts are folded, and numbers and single short words stay whole.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows and empty:
        say(empty)
        return
    table = Table(box=None, pad_edge=False, show_header=any(columns))
    cells = [[printable(cell) for cell in row] for row in rows]
    for i, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=all(_is_short(row[i]) for row in cells))
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)
