"""How commands print what they found: as a table or as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import Any

from bftrainer.cli.shared.terminal import printable, say


def print_json(value: object) -> None:
    """Print a value as JSON; NaN and infinity, which JSON does not have, become null."""
    say(json.dumps(_finite(value), indent=2, allow_nan=False).replace("\x7f", "\\u007f"))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    empty: str = "",
    *,
    numbers: Collection[str] = (),
) -> None:
    """Print a plain table, without a header if all columns are ""; without rows, print `empty` instead. The
    columns of `numbers` stand to the right.

    Control characters in cells are escaped; a cell of several lines is a list.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows and empty:
        say(empty)
        return
    table = Table(box=None, pad_edge=False, show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in numbers else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(table)
