"""Opens the SQLite file: creates it, or migrates it to the present version."""

from __future__ import annotations

import os
import sqlite3
import time
from importlib.resources import files
from os.path import samestat
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.exc import DatabaseError, OperationalError

from bftrainer.errors import StoreError
from bftrainer.messages.commands.running import DATABASE
from bftrainer.store.damage import object_of

BUSY_S = 1.0
"""Seconds that a transaction waits for another connection's lock; the daemon then retries."""

START_S = 30.0
"""Seconds that a start waits for another process that has locked the database."""
REMEDIES = {
    "not a database": "restore it from a backup, or move the file away: trainers are gone then, their "
    "checkpoints are not",
    "malformed": "restore it from a backup, or save what can be read with sqlite3's .recover",
    "readonly": "the daemon's user must be able to write the file, and its folder",
    "unable to open": "the daemon's user must be able to read and write it, and its folder",
    "locked": "another process uses it; fuser names it",
    "disk I/O error": "its disk is full, or fails: free some space there, and start the daemon again",
    "disk is full": "free some space there, and start the daemon again",
    "too big": "bftrainer writes no value of that size: restore the file from a backup, or mend it",
}
"""Remedies by SQLite's words."""
TIDY_LOG_BYTES = 4_000_000
"""A log (WAL) of more than this is brought into the database when there is time."""
LOG_PAGES = 8_000
"""And at the next commit once it has this number of pages of 4 kB, if there was no time before."""
MOST_VALUE_BYTES = 32_000_000
"""No value is larger: one that is was not written by bftrainer, and is not read into memory."""
MOST_LOG_BYTES = 512_000_000
"""Bytes of the log from which on nothing is written any more: it grows as long as anybody reads."""


def place_of(path: Path) -> Path:
    """The file itself that a path leads to, which may be missing yet.

    Raises:
        StoreError: a link leads to no folder, which would be made elsewhere, or there is no regular file.
    """
    try:
        found = path.resolve()
        leads_nowhere = path.is_symlink() and (not found.parent.is_dir() or found.is_symlink())
    except (
        OSError,
        RuntimeError,
    ):  # links in a circle, before Python 3.13; later they resolve to one of them
        leads_nowhere = True
    if leads_nowhere:
        raise _unusable(path, "a link that leads to no file; remove it, or restore the file")
    if found.exists() and not found.is_file():
        raise _unusable(path, "not a regular file; move it away, or restore the database from a backup")
    return found


def _unusable(path: Path, why: str) -> StoreError:
    return StoreError(DATABASE.ends(f"{path}: {why}"))


def check_same(path: Path, opened: os.stat_result) -> None:
    """Check that the file at `path` is the one that was opened.

    Raises:
        StoreError: it is gone, or another one.
    """
    try:
        same = samestat(path.stat(), opened)
    except OSError as error:
        raise _unusable(path, f"{error.strerror}; put it back, or restart the daemon") from error
    if not same:
        raise _unusable(
            path, "it is another file than the one that was opened; put that one back, or restart the daemon"
        )


def open_database(path: Path) -> sa.Engine:
    """Open, create or upgrade the database at `path`, and its folder.

    Raises:
        StoreError: not a database of bftrainer, one of a newer version, or not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.touch(mode=0o600)  # SQLite gives its other files the permissions of this one
    except OSError as error:
        raise _unusable(path, str(error)) from error
    engine = sa.create_engine(
        f"sqlite:///{path}",
        connect_args={"timeout": BUSY_S, "check_same_thread": False},
        json_deserializer=object_of,
    )
    sa.event.listen(engine, "connect", _set_pragmas)
    try:
        _patiently_upgrade(engine)
    except (DatabaseError, UnicodeDecodeError) as error:
        engine.dispose()
        raise _unusable(path, cause(error)) from error
    except CommandError as error:
        engine.dispose()
        raise _unusable(
            path,
            f"{error}; a newer bftrainer wrote it, one from before 0.9.0, or none: upgrade bftrainer, or "
            "move the file away",
        ) from error
    return engine


def cause(error: Exception) -> str:
    """The first line of what SQLite said, without SQLAlchemy's additions, and what to do where that helps. Of
    a damaged table its message may be no text."""
    first = getattr(error, "orig", None) or error
    said = first.object.decode(errors="replace") if isinstance(first, UnicodeDecodeError) else str(first)
    said = said.splitlines()[0]
    return said + next((f"; {remedy}" for text, remedy in REMEDIES.items() if text in said), "")


def _patiently_upgrade(engine: sa.Engine) -> None:
    """Create or upgrade the tables. A database that is locked is waited for: a backup ends."""
    give_up_at = time.monotonic() + START_S
    while True:
        try:
            with engine.begin() as connection:
                _upgrade(connection)
                return
        except OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up_at:
                raise


def _set_pragmas(connection: Any, record: object) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)
    # WAL: readers never wait for the writer; NORMAL: a power cut may cost the last transactions, but
    # a killed daemon costs none
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        f"wal_autocheckpoint={LOG_PAGES}",
        f"journal_size_limit={2 * LOG_PAGES * 4096}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def log_bytes(path: Path) -> int:
    """The size of the log of the database at `path`, in bytes."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except OSError:  # there is none
        return 0


def check_log(path: Path, most: int) -> None:
    """Check that the log of the database at `path` has no more than `most` bytes.

    Raises:
        StoreError: it has more.
    """
    if (size := log_bytes(path)) > most:
        said = (
            f"{path}-wal has {size / 1e6:.0f} MB and cannot be emptied: another process has been reading the "
            f"database for long; find it with fuser {path}, and end it"
        )
        raise StoreError(DATABASE.ends(said))


def shorten_log(connection: sa.Connection, *, to_nothing: bool = False) -> None:
    """Bring what is in the log into the database, as far as no reader needs it there. `to_nothing` waits a
    moment for readers, and gives the log's space back."""
    connection.exec_driver_sql(f"PRAGMA wal_checkpoint({'TRUNCATE' if to_nothing else 'PASSIVE'})")


def _upgrade(connection: sa.Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(files("bftrainer.store") / "migrations"))
    config.attributes["connection"] = connection
    known = {s.revision for s in ScriptDirectory.from_config(config).walk_revisions()}
    names = sa.inspect(connection).get_table_names()
    if "alembic_version" in names:
        version = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        if version not in known:
            raise CommandError(f"its version {version!r} is unknown here")
    elif names:
        raise CommandError(f"it holds other tables ({', '.join(sorted(names)[:3])})")
    command.upgrade(config, "head")
