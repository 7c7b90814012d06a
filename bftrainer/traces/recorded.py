"""The files of a recorded series: their names, and which of them hold it."""

from __future__ import annotations

import re
from pathlib import Path

from bftrainer.messages.files.logs import NO_SERIES
from bftrainer.messages.files.places import UNREADABLE
from bftrainer.traces.intervals import LogError

NAME = re.compile(r"record-([0-9]{8}T[0-9]{6}(?:\.[0-9]+)?Z)\.jsonl(\.gz)?")
"""`record-20261123T042000Z.jsonl`, after its rotation with `.gz`; the time is when it began, UTC."""


def paths(folder: Path) -> list[Path]:
    """All files of the series in a folder, in order of time; one may be there twice, plain and packed.

    Raises:
        OSError: the folder cannot be read.
    """
    return sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))


def files(folder: Path) -> list[Path]:
    """The files to read, in order of time: of one that is there twice, the packed one, which is whole.

    Raises:
        LogError: there is none, or the folder cannot be read.
    """
    try:
        found = {path.name.removesuffix(".gz"): path for path in paths(folder)}
    except OSError as error:
        raise LogError(UNREADABLE.say(path=folder.name, why=error.strerror)) from error
    if not found:
        raise LogError(NO_SERIES.say())
    return list(found.values())


def is_series(folder: Path) -> bool:
    """True if a folder has files of a series."""
    try:
        return bool(paths(folder))
    except OSError:
        return False
