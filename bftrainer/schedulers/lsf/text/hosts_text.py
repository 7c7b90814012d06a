"""Reads bhosts, bslots and lshosts: hosts, and for how long slots stay unused. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer.schedulers.lsf import values
from bftrainer.schedulers.lsf.rows import BackfillWindow, HostRow
from bftrainer.schedulers.lsf.text import tables
from bftrainer.schedulers.lsf.text.tables import Record
from bftrainer.schedulers.shared.text import TextError

NO_WINDOWS = "No backfill window"
"""Words of bslots when there is no window: `... exists at this time`, or `... meets ...`, also with an exit
code that is not 0."""


def hosts(text: str) -> dict[str, HostRow]:
    """The hosts that bhosts shows, by name, customised (`-o`, with or without `-json`) or as columns. A row
    without numbers is left out.

    Raises:
        TextError: there is no host. So a machine is never taken to be empty.
    """
    custom = "{" in text[:80] or tables.DELIMITER in text.partition("\n")[0]
    rows = tables.records(text) if custom else tables.columns(text, "HOST_NAME")
    found = {row.name: row for row in map(_host, rows) if row is not None}
    if not found:
        raise TextError(f"no host in {text[:80]!r}")
    return found


def _host(row: Record) -> HostRow | None:
    name = row.get("HOST_NAME", "")
    numbers = [values.number(row.get(key, "")) for key in ("RUN", "SSUSP", "USUSP")]
    if not values.HOST_NAME.fullmatch(name) or None in numbers:
        return None
    return HostRow(
        name,
        row.get("STATUS", ""),
        values.count(row.get("MAX", "")),
        sum(n for n in numbers if n is not None),
        values.count(row.get("RSV", "")),
        values.number(row.get("MAX", "")) is not None,
    )


def windows(text: str) -> tuple[BackfillWindow, ...]:
    """The backfill windows that bslots shows, in its short or its long form; () if there are none.

    Raises:
        TextError: it says neither that there are windows nor that there are none.
    """
    if NO_WINDOWS in text:
        return ()
    lines = [line.split(maxsplit=1) for line in text.split("\n") if line.strip()]
    if any(words[0] == "SLOTS:" for words in lines):
        return _long_windows(lines)
    start = next((i for i, words in enumerate(lines) if words == ["SLOTS", "RUNTIME"]), None)
    start = start if start is not None else _header(lines)
    found = []
    for words in lines[start + 1 :]:
        slots, length = values.number(words[0]), values.window_s(words[1] if len(words) > 1 else "")
        if slots is None or length is None or slots > values.MOST_SLOTS:
            break
        found.append(BackfillWindow(slots, length))
    if not found:
        raise TextError(f"no window that can be read in {text[:80]!r}")
    return tuple(found)


def _header(lines: Sequence[Sequence[str]]) -> int:
    for i, words in enumerate(lines):
        if words[0] == "SLOTS" and " ".join(words).split() == ["SLOTS", "RUNTIME"]:
            return i
    raise TextError("no line SLOTS RUNTIME")


def _long_windows(lines: Sequence[Sequence[str]]) -> tuple[BackfillWindow, ...]:
    """Blocks of SLOTS:, RUNTIME: and HOSTS:, whose list of hosts may go on in further lines."""
    found: list[tuple[int, float | None, str]] = []
    in_hosts = False
    for words in lines:
        key, value = words[0], words[1] if len(words) > 1 else ""
        if key == "SLOTS:":
            found.append((values.count(value), None, ""))
        elif found and key == "RUNTIME:":
            found[-1] = (found[-1][0], values.window_s(value), "")
        elif found and (key == "HOSTS:" or in_hosts):
            more = value if key == "HOSTS:" else " ".join(words)
            found[-1] = (*found[-1][:2], f"{found[-1][2]} {more}")
        in_hosts = key == "HOSTS:" or (in_hosts and not key.endswith(":"))
    read = tuple(
        BackfillWindow(slots, length, values.listed_hosts(hosts))
        for slots, length, hosts in found
        if slots and length is not None
    )
    if not read:
        raise TextError("no window that can be read")
    return read
