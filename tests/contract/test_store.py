"""The SQLite store passes the store's contract, and bears broken and foreign databases."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from bftrainer.errors import StoreError
from bftrainer.model.main_jobs import Affected
from bftrainer.ports import Store
from bftrainer.store.sql import SqlStore
from bftrainer.testing.store import SPEC, START, StoreContract


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    opened: list[SqlStore] = []

    def function() -> Store:
        for store in opened:
            store.close()
        opened.append(SqlStore(tmp_path / "bftrainer.db"))
        return opened[-1]

    yield function
    for store in opened:
        store.close()


class TestSqlStore(StoreContract):
    pass


def test_is_in_wal_mode(tmp_path: Path) -> None:
    SqlStore(tmp_path / "bftrainer.db").close()
    assert sqlite3.connect(tmp_path / "bftrainer.db").execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_decision_without_its_event_is_refused(tmp_path: Path) -> None:
    store = SqlStore(tmp_path / "bftrainer.db")
    with pytest.raises(IntegrityError, match="FOREIGN KEY"), store._engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO actions VALUES (1, 77, 'StopWorker', 1, 1, '{}', NULL)")
    store.close()


def test_a_write_waits_for_another_process_to_end_its_own(tmp_path: Path) -> None:
    store = SqlStore(tmp_path / "bftrainer.db")
    other = sqlite3.connect(tmp_path / "bftrainer.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, other.execute, ["COMMIT"])
    release.start()
    store.put("key", "written after the other's transaction")
    assert store.get("key")
    release.join()
    other.close()
    store.close()


def test_tables_are_what_the_migrations_make(tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from sqlalchemy import create_engine

    from bftrainer.store.tables import metadata

    SqlStore(tmp_path / "bftrainer.db").close()
    with create_engine(f"sqlite:///{tmp_path / 'bftrainer.db'}").connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE other (x)",
        "CREATE TABLE alembic_version (version_num); INSERT INTO alembic_version VALUES ('9999')",
    ],
)
def test_a_foreign_or_newer_database_is_left_alone(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "bftrainer.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(statement)
    before = path.read_bytes()
    why = "its version '9999' is unknown here" if "9999" in statement else r"it holds other tables \(other\)"
    with pytest.raises(StoreError, match=rf"bftrainer\.db: {why}.*move the file away"):
        SqlStore(path)
    connection.close()
    assert sqlite3.connect(path).execute("SELECT name FROM sqlite_master").fetchall()[0][0] in (
        "other",
        "alembic_version",
    )
    assert before[:16] == path.read_bytes()[:16]


def test_what_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bftrainer.db").write_bytes(b"not a database at all, but long enough to look" * 10)
    with pytest.raises(StoreError, match="not a database"):
        SqlStore(tmp_path / "bftrainer.db")


def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    store = SqlStore(tmp_path / "bftrainer.db")
    store.submit(SPEC, 0.0)
    with store._engine.begin() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="full"):
        for i in range(10_000):
            store.put(f"key {i}", "x" * 1000)
    assert [t.spec for t in store.trainers()] == [SPEC]
    store.close()


def test_starts_of_main_jobs_are_kept_up_to_a_bound(reopen: Callable[[], Store]) -> None:
    store = reopen()
    starts = [replace(START, time=float(time), job=str(time)) for time in range(10)]
    store.main_started(starts[:6], 5)
    store.main_started([], 5)
    store.main_started(starts[6:], 5)
    store = reopen()
    assert store.main_starts(0.0, 100) == starts[5:]
    assert store.main_starts(7.5, 100) == starts[8:]
    assert store.main_starts(0.0, 2) == starts[8:]


def test_where_main_jobs_started_that_we_can_have_affected_is_kept_in_short(
    reopen: Callable[[], Store],
) -> None:
    store = reopen()
    on = frozenset(f"n{i}" for i in range(1, 4609))
    apart = frozenset(f"n{i}" for i in range(0, 4608, 2))
    other = replace(START, affected=Affected.NO, on=on)
    store.main_started([replace(START, on=on), replace(START, on=apart), other], 5)
    found = reopen().main_starts(0.0, 9)
    assert [start.where[:12] for start in found] == ["n[1-4608]", "n[0,2,4,6,8,", ""]
    assert len(found[1].where) <= 1003 and found[1].where.endswith("...")
