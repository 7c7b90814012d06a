"""Prints results as a table or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from bftrainer.api.listing import finite
from bftrainer.cli.shared.terminal import printable, say

if TYPE_CHECKING:
    from bftrainer.model.finding import Finding


SHORT = 14
"""A cell that is no longer is never folded: numbers, a status, a time span."""
FOLDED = 12
"""Longer texts are folded to no less than this, and a table is as wide as that needs."""
WORD = 24
"""Words of a text that are no longer stay whole, such as `loss=0.1234`."""


def print_json(value: object) -> None:
    """Print a value as JSON; NaN and infinity, which JSON does not have, become null."""
    say(json.dumps(finite(value), indent=2, allow_nan=False).replace("\x7f", "\\u007f"))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    empty: str = "",
    *,
    numbers: Collection[str] = (),
    styles: Sequence[str] = (),
    cut: Collection[str] = (),
) -> None:
    """Print a plain table, without a header if all columns are ""; without rows, print `empty` instead. The
    columns of `numbers` stand to the right. `styles` are the rows' colours, where there is a terminal.

    Control characters in cells are escaped; a cell of several lines is a list. Where the terminal is narrow,
    texts are folded, but those in columns of `cut` are cut; numbers and single short words stay whole.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows and empty:
        say(empty)
        return
    table = Table(box=None, pad_edge=False, show_header=any(columns))
    cells = [[printable(cell) for cell in row] for row in rows]
    needed = 2 * (len(columns) - 1)  # between columns
    for i, title in enumerate(columns):
        longest = max((len(line) for row in cells for line in row[i].split("\n")), default=0)
        words = (len(word) for row in cells for word in row[i].split())
        folded = max((length for length in words if length <= WORD), default=0)
        if title in cut:
            folded = FOLDED
        least = max(len(title), longest if longest <= SHORT else max(FOLDED, folded))
        table.add_column(
            title,
            overflow="ellipsis" if title in cut else "fold",
            no_wrap=longest <= SHORT or title in cut,
            min_width=least,
            justify="right" if title in numbers else "left",
        )
        needed += least
    for i, row in enumerate(cells):
        table.add_row(*map(Text, row), style=styles[i] if styles else "")
    if needed >= Console().width:
        for column in table.columns:  # rich would make some narrower than that
            column.width = column.min_width
    Console(width=max(Console().width, needed)).print(table)


def finish(found: Sequence[Finding], *, as_json: bool) -> NoReturn:
    """Print what was found, and end with exit code 1 if something is wrong."""
    from bftrainer.model.finding import Level

    if as_json:
        print_json([asdict(one) for one in found])
    else:
        print_table(("", "check", "found"), [row for one in found for row in _rows(one)])
    sys.exit(1 if any(one.level is Level.WRONG for one in found) else 0)


def _rows(finding: Finding) -> list[tuple[str, str, str]]:
    """Return a finding's rows, with what to do about it on a line of its own."""
    found = [(finding.level.value, finding.check, finding.found)]
    return [*found, ("", "", f"-> {finding.remedy}")] if finding.remedy else found
