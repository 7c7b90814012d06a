"""The file that keeps a replay for its report: gzipped JSON, `*.json.gz`. docs/replay.md has its keys."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bftrainer.errors import BftrainerError
from bftrainer.files import open_regular
from bftrainer.messages.files.places import UNWRITABLE
from bftrainer.messages.files.replays import NO_RECORD
from bftrainer.replay.record.checked import FORMAT, checked
from bftrainer.replay.record.data import ReportData
from bftrainer.traces.whole_file import whole_file

SUFFIX = ".json.gz"
MOST_BYTES = 1_000_000_000
"""Most bytes of a record, unpacked."""


class ReportDataError(BftrainerError, ValueError):
    """A file that is no record of a replay, or cannot be written. The message names it."""


def write(data: ReportData, path: Path) -> None:
    """Write a record. The file appears when it is complete, in place of one that was there.

    Raises:
        ReportDataError: the file cannot be written.
    """
    try:
        with (
            whole_file(path) as draft,
            draft.open("wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as file,
        ):
            file.write(as_json(data))
    except OSError as error:
        raise ReportDataError(UNWRITABLE.say(path=path, why=error.strerror or error)) from error


def read(path: Path) -> ReportData:
    """The record in a file.

    Raises:
        ReportDataError: unreadable, or no record of a replay.
    """
    try:
        with open_regular(path) as raw, gzip.open(raw) as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ValueError(f"unpacked more than {MOST_BYTES:,} bytes")
        return checked(json.loads(text))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise ReportDataError(f"{path}: {NO_RECORD.say(why=error, suffix=SUFFIX)}") from error


def as_json(data: ReportData) -> bytes:
    """Return a record as JSON: what the file has, unpacked."""
    return json.dumps(_plain(data), separators=(",", ":")).encode()


def _plain(data: ReportData) -> dict[str, Any]:
    """The data as JSON has it."""
    return {
        "format": FORMAT,
        "name": data.name,
        "begin": data.begin,
        "end": data.end,
        "parameters": data.parameters,
        "figures": data.figures,
        "nodes": data.nodes,
        "trainers": [asdict(trainer) for trainer in data.trainers],
        "windows": [asdict(window) for window in data.windows],
        "moments": _columns(data.moments),
        "decisions": _columns(data.decisions),
        "stays": _columns(data.stays),
    }


def _columns(table: NamedTuple) -> dict[str, list[float]]:
    """Columns of numbers rounded to 1/1000 (s, samples); whole numbers without a decimal point."""
    return {
        name: [int(x) if x.is_integer() else x for x in np.round(column, 3).tolist()]
        for name, column in zip(table._fields, table, strict=True)
    }
