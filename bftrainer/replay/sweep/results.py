"""The rows of a sweep: a table in `results.sqlite`, and `results.csv`."""

from __future__ import annotations

import csv
import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bftrainer.files import strangers_beside
from bftrainer.messages.files.places import STRANGERS_DATABASE, UNWRITABLE
from bftrainer.model.text import shown
from bftrainer.replay.sweep.execute import Row
from bftrainer.replay.sweep.grid import SweepError
from bftrainer.traces.whole_file import whole_file


class Results:
    """The table `runs` of `results.sqlite` in a folder: a row for every run that ended, by its key.

    It gets a column for every name that a row brings. Rows of former sweeps stay.

    Raises:
        SweepError: the folder or the file cannot be opened, or strangers can put files beside it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "results.sqlite"
            if path.is_symlink() and path.lstat().st_uid not in {0, os.geteuid()}:
                raise PermissionError(errno.EPERM, f"{path.name} is a link that belongs to another user")
            path = Path(os.path.realpath(path))
            if why := strangers_beside(path):
                raise SweepError(STRANGERS_DATABASE.say(path=folder / path.name, why=why))
            self._db = sqlite3.connect(path, timeout=60)
            self._db.execute("CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, name, error)")
        except (OSError, ValueError, sqlite3.Error) as error:  # ValueError: no name of a folder
            raise SweepError(UNWRITABLE.say(path=folder, why=error)) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def finished(self) -> set[str]:
        """The keys of the runs that did not fail."""
        with self._told():
            return {key for (key,) in self._db.execute("SELECT key FROM runs WHERE error IS NULL")}

    def add(self, row: Row) -> None:
        """Store a row, in place of one that the run had before.

        Raises:
            SweepError: it cannot be stored.
        """
        row = {shown(name): _storable(value) for name, value in row.items()}
        with self._told(), self._db:
            known = {column for _, column, *_ in self._db.execute("PRAGMA table_info(runs)")}
            for name in (name for name in row if name not in known):
                self._db.execute(f"ALTER TABLE runs ADD COLUMN {_quoted(name)}")
            names = ", ".join(map(_quoted, row))
            marks = ", ".join("?" * len(row))
            self._db.execute(f"REPLACE INTO runs ({names}) VALUES ({marks})", tuple(row.values()))  # noqa: S608

    def rows(self, keys: Iterable[str]) -> list[Row]:
        """The rows of these runs, as far as they ended; a column that a row does not have is None."""
        with self._told():
            cursor = self._db.execute("SELECT * FROM runs")
            names = [column[0] for column in cursor.description]
            found = {row[0]: dict(zip(names, row, strict=True)) for row in cursor}
        return [found[key] for key in keys if key in found]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise `SweepError` for what the database refuses."""
        try:
            yield
        except sqlite3.Error as error:
            path = self._folder / "results.sqlite"
            raise SweepError(UNWRITABLE.say(path=path, why=error)) from error


def _storable(value: object) -> object:
    return shown(value) if isinstance(value, str) else value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write one line per row, under the names of all columns. The file appears when it is complete.

    Raises:
        SweepError: the file cannot be written.
    """
    names = list(rows[0]) if rows else []
    try:
        with whole_file(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise SweepError(UNWRITABLE.say(path=path, why=error.strerror or error)) from error
