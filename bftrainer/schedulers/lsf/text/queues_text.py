"""Reads bqueues and lsid: queues, their policies, and which LSF it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer.schedulers.lsf import values
from bftrainer.schedulers.lsf.rows import QueueRow
from bftrainer.schedulers.lsf.text import tables
from bftrainer.schedulers.lsf.text.tables import Record
from bftrainer.schedulers.shared.text import TextError


def queues(text: str) -> dict[str, QueueRow]:
    """The queues that bqueues shows, by name: as columns, or customised with blanks or our delimiter or as
    JSON.

    Raises:
        TextError: there is no queue.
    """
    custom = "{" in text[:80] or tables.DELIMITER in text.partition("\n")[0]
    rows = tables.records(text) if custom else tables.columns(text, "QUEUE_NAME")
    found = {row.name: row for row in map(_queue, rows) if row is not None}
    if not found:
        raise TextError(f"no queue in {text[:80]!r}")
    return found


def _queue(row: Record) -> QueueRow | None:
    gate, colon, clock = row.get("STATUS", "").partition(":")
    if not colon or not row.get("QUEUE_NAME"):
        return None
    return QueueRow(
        row.get("QUEUE_NAME", ""),
        values.count(row.get("PRIORITY", "")),
        gate == "Open",
        clock == "Active",
    )


def policies(text: str) -> dict[str, Mapping[str, str]]:
    """Parse what `bqueues -l` says of each queue: its lines `NAME: value`, and limits such as RUNLIMIT, whose
    value is in the next line. Names of these are upper case."""
    parts = re.split(r"(?m)^QUEUE: *(\S+) *$", text)
    return {name: _policies(block) for name, block in zip(parts[1::2], parts[2::2], strict=True)}


def _policies(block: str) -> Mapping[str, str]:
    lines = tables.unwrapped(block)
    found: dict[str, str] = {}
    for i, line in enumerate(lines):
        if match := re.fullmatch(r" *([A-Z][A-Z_ /-]{1,60}?): *(.*?) *", line):
            found.setdefault(match[1], match[2])
        elif re.fullmatch(r" *[A-Z]{2,12}LIMIT *", line) and i + 1 < len(lines):
            found.setdefault(line.strip(), lines[i + 1].strip())
    return found


@dataclass(frozen=True, slots=True)
class LsfIdentity:
    """Identifies the LSF that answers."""

    version: str
    cluster: str
    master: str


def identity(text: str) -> LsfIdentity:
    """Parse the output of lsid.

    Raises:
        TextError: it names no cluster.
    """
    cluster = re.search(r"(?m)^My cluster name is (\S+)", text)
    if not cluster:
        raise TextError(f"no cluster in {text[:80]!r}")
    master = re.search(r"(?m)^My (?:master|management host) name is (\S+)", text)
    version = re.search(r"(?m)^.*? ([0-9]+(?:\.[0-9]+){1,4}), ", text)
    return LsfIdentity(version[1] if version else "", cluster[1], master[1] if master else "")
