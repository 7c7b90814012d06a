"""The forms in which LSF's commands print rows: JSON, delimited, columns, and wrapped blocks. Pure.

Users choose the names of their jobs. In JSON such a name should be quoted well; where it is not, each record
is read line by line, so that one user's text does not hide all other rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bftrainer.schedulers.lsf.values import plain
from bftrainer.schedulers.shared.text import TextError

Record = Mapping[str, str]
INDENT = 21
"""Spaces of indent: LSF wraps long lines in the middle of a word and indents what follows."""
DELIMITER = "^"
"""The delimiter that our queries ask for: no name of a host, queue or user has it."""
_ITEM = re.compile(r'\s*"([A-Z_%]{1,40})"\s*:\s*"(.*)",?\s*')


_ESCAPED = re.compile(r'\\(["/\\])')


class _DoubledError(ValueError):
    """A record has a key twice."""


def records(text: str, *, delimiter: str = DELIMITER) -> list[Record]:
    """The rows that a command printed with `-o`, as JSON or with a delimiter: name of a field -> value, ""
    where there is none. Rows that LSF gives an error instead of values for are left out.

    Raises:
        TextError: it is neither.
    """
    start = text.find("{")
    if start >= 0 and not text[:start].strip():
        return [row for row in _of_json(text[start:]) if "ERROR" not in row]
    return delimited(text, delimiter)


def _of_json(text: str) -> list[Record]:
    try:
        found, _ = json.JSONDecoder(strict=False, object_pairs_hook=_once).raw_decode(text)
    except (ValueError, RecursionError):
        return list(_by_line(text))
    rows = found.get("RECORDS") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        raise TextError(f"no RECORDS in what should be JSON: {text[:80]!r}")
    return [{str(key): _text(value) for key, value in row.items()} for row in rows if isinstance(row, dict)]


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _DoubledError
    return found


def _text(value: object) -> str:
    return plain(value) if isinstance(value, str) else "" if value is None else str(value)


def _by_line(text: str) -> Iterator[Record]:
    """The records of JSON that is not well formed, as LSF prints it: one value a line. A record with a key
    twice is left out: somebody made it up.

    Raises:
        TextError: there is no record.
    """
    body = text.partition('"RECORDS"')[2]
    if not body:
        raise TextError(f"this is no JSON of LSF: {text[:80]!r}")
    row: dict[str, str] = {}
    doubled = False
    for line in body.split("\n"):
        match = _ITEM.fullmatch(line)
        if match:
            doubled |= match[1] in row
            row[match[1]] = plain(_ESCAPED.sub(r"\1", match[2]))
        elif line.strip() in ("}", "},"):
            if row and not doubled:
                yield row
            row, doubled = {}, False
    if not body.rstrip().endswith("}"):
        raise TextError("the JSON ends in the middle")


def delimited(text: str, delimiter: str) -> list[Record]:
    """The rows below a line of names. The last value has what is left of its line.

    Raises:
        TextError: there is no line of names.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    names = [name.strip() for name in lines[0].split(delimiter)] if lines else []
    if not names or not all(re.fullmatch(r"[A-Z_%/]{1,40}", name) for name in names):
        raise TextError(f"no names of fields in {text[:80]!r}")
    rows = (line.split(delimiter, len(names) - 1) for line in lines[1:])
    return [
        {_name(name): plain(value) for name, value in zip(names, row, strict=True)}
        for row in rows
        if len(row) == len(names)
    ]


def columns(text: str, first: str) -> list[Record]:
    """The rows of a table whose values have no blanks, below the line that begins with the name `first`.

    Raises:
        TextError: there is no such line.
    """
    lines = text.split("\n")
    at = next((i for i, line in enumerate(lines) if line.split()[:1] == [first]), None)
    if at is None:
        raise TextError(f"no column {first} in {text[:80]!r}")
    names = lines[at].split()
    rows: list[Record] = []
    for line in lines[at + 1 :]:
        words = line.split()
        if not words:
            break
        row = dict.fromkeys(map(_name, names), "")  # of a host that is down, lsload says nothing more
        rows.append(row | {_name(n): plain(word) for n, word in zip(names, words, strict=False)})
    return rows


def _name(name: str) -> str:
    """JL/U and PRIO are called JL_U and PRIORITY where the output is customised."""
    name = name.replace("/", "_")
    return "PRIORITY" if name == "PRIO" else name


def unwrapped(text: str) -> list[str]:
    """The lines of a long output as they were before LSF wrapped them."""
    found: list[str] = []
    blank = " " * INDENT
    for line in text.split("\n"):
        if line.startswith(blank) and found and found[-1].strip():
            found[-1] += line[INDENT:]
        else:
            found.append(line)
    return found
