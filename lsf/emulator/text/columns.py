"""Customised output of bjobs, bhosts and bqueues: `-o "field:width ... delimiter='c'"` and `-json`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted

EMPTY = "-"
DELIMITER = re.compile(r"""delimiter=(?:'(.)'|"(.)"|(\S))""")


class FormatError(Exception):
    """The format cannot be understood; the text is what the command says."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its field and its width, 0 for that of the text; `right`: aligned to the right."""

    field: str
    width: int = 0
    right: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """Columns in their order; `delimiter` "" pads them."""

    columns: tuple[Column, ...]
    delimiter: str = ""


Row = Mapping[str, str]
"""Field in capitals -> value; "" where there is none."""


def parse(text: str, widths: Mapping[str, int], aliases: Mapping[str, str]) -> Format:
    """Read a format. `widths` has every known field in small letters.

    Raises:
        FormatError: a field is not known.
    """
    found = DELIMITER.search(text)
    delimiter = next(filter(None, found.groups())) if found else ""
    columns = []
    for word in DELIMITER.sub("", text).split():
        name, _, width = word.lower().partition(":")
        name = aliases.get(name, name)
        if name not in widths:
            raise FormatError(f"Bad format string: unknown field <{word}>")
        digits = width.lstrip("-")
        if width and digits and not digits.isdecimal():
            raise FormatError(f"Bad format string: width of field <{word}>")
        size = int(digits) if digits else widths[name]
        columns.append(Column(name.upper(), 0 if delimiter and not digits else size, width.startswith("-")))
    if not columns:
        raise FormatError("Bad format string: no field")
    return Format(tuple(columns), delimiter)


Padding = Mapping[str, tuple[int, int]]
"""Field -> the width of its title and of its values, which are padded in spite of a delimiter."""


def table(form: Format, rows: Sequence[Row], *, header: bool = True, padding: Padding | None = None) -> str:
    """The rows as text, with a header unless told otherwise."""
    padding = padding or {}
    lines = []
    if header:
        titles = {c.field: c.field.ljust(padding.get(c.field, (0, 0))[0]) for c in form.columns}
        lines.append(_line(form, titles, {}))
    lines += [_line(form, row, padding) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def _line(form: Format, row: Row, padding: Padding) -> str:
    cells = []
    for column in form.columns:
        text = row[column.field] or EMPTY
        if column.field in padding:
            _, wide = padding[column.field]
            text = text.center(wide) if text == EMPTY else text.ljust(wide)
        if column.width:
            text = text[: column.width]
            text = text.rjust(column.width) if column.right else text.ljust(column.width)
        cells.append(text)
    return (form.delimiter or " ").join(cells)


def as_json(command: str, counted: str, form: Format, rows: Sequence[Row]) -> str:
    """The rows as LSF's JSON: two spaces a level, none after a colon, every value a string."""
    records = [
        "    {\n"
        + ",\n".join(f'      "{column.field}":{quoted(row[column.field])}' for column in form.columns)
        + "\n    }"
        for row in rows
    ]
    inner = "[\n" + ",\n".join(records) + "\n  ]" if records else "[\n  ]"
    return f'{{\n  "COMMAND":"{command}",\n  "{counted}":{len(rows)},\n  "RECORDS":{inner}\n}}\n'
