"""Databases that are damaged, replaced, locked or not to be written: what is told, and what goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.errors import StoreError
from bftrainer.model.events import NodesChanged
from bftrainer.model.studies import StoredStudy
from bftrainer.store import database, sql
from bftrainer.store.sql import SqlStore
from bftrainer.testing.store import SPEC
from tests.support.no_nodes import NoNodes
from tests.support.nodes_world import settings_in
from tests.support.waiting import until_true

Spoil = Callable[[dict[str, object]], object]


def without_command(spec: dict[str, object]) -> object:
    del spec["command"]
    return spec


def unknown_launcher(spec: dict[str, object]) -> object:
    return {**spec, "launcher": "unheard of"}


DAMAGE: list[tuple[str, object]] = [
    ("spec", "{"),
    ("spec", "7"),
    ("spec", "null"),
    ("spec", "[" * 100_000),
    ("spec", "\x00\xff"),
    ("spec", without_command),
    ("spec", lambda spec: {**spec, "n_min": 0}),
    ("spec", lambda spec: {**spec, "n_min": 9}),
    ("spec", lambda spec: {**spec, "n_max": "many"}),
    ("spec", lambda spec: {**spec, "sizes": {"listed": [3], "multiple_of": 1}}),
    ("spec", lambda spec: {**spec, "sizes": {"listed": [4, 1], "multiple_of": 1}}),
    ("spec", lambda spec: {**spec, "sizes": {"listed": [], "multiple_of": 0}}),
    ("spec", lambda spec: {**spec, "sizes": 4}),
    ("spec", lambda spec: {**spec, "weight": float("inf")}),
    ("spec", lambda spec: {**spec, "scalability": "unheard of"}),
    ("spec", unknown_launcher),
    ("spec", lambda spec: {**spec, "curve": [[1]]}),
    ("spec", lambda spec: {**spec, "priority": float("inf")}),
    ("engine", "[]"),
    ("engine", "[7]"),
    ("engine", "7"),
    ("engine", lambda engine: {**engine, "priority": "high"}),
    ("engine", lambda engine: {**engine, "nodes": {"n1": 1}, "members": 3}),
    ("engine", lambda engine: {**engine, "observed": {"speeds": [[None, 1, {"count": "x"}]]}}),
    ("status", "unheard of"),
    ("samples", "a lot"),
    ("submitted_at", "yesterday"),
    ("metrics", '{"loss": "low"}'),
]


def spoil(path: Path, trainer: int, column: str, how: object) -> None:
    """Put something into a column that bftrainer would not write."""
    with sqlite3.connect(path) as connection:
        if callable(how):
            query = f"SELECT {column} FROM trainers WHERE id = ?"  # noqa: S608
            (text,) = connection.execute(query, (trainer,)).fetchone()
            how = json.dumps(how(json.loads(text)))
        connection.execute(f"UPDATE trainers SET {column} = ? WHERE id = ?", (how, trainer))  # noqa: S608
    connection.close()


@pytest.mark.parametrize(("column", "how"), DAMAGE)
def test_a_damaged_trainer_fails_and_keeps_no_other_back(tmp_path: Path, column: str, how: object) -> None:
    own = settings_in(tmp_path, reconnect_s=1e-9)
    store = SqlStore(own.database)
    first, second = (store.submit(replace(SPEC, name=name), 1.0) for name in ("damaged", "whole"))
    spoil(own.database, first, column, how)

    async def scenario() -> None:
        daemon = Daemon(own, NoNodes(), store, WallClock())  # type: ignore[arg-type]
        assert [t.id for t in store.unfinished_summaries()] == [first, second]
        failed = await daemon.recovery.load()
        daemon.load_index()
        for end in failed:
            daemon.index.end(end, 3.0, None)
        await daemon.recovery.run(daemon.agents)
        assert daemon.runner.state.trainers.keys() == {second}
        await daemon.journal.close()
        daemon.runner.close()
        assert [t.id for t in daemon.index.of(None)] == [second]
        (ended,) = store.ended_summaries(10)
        assert (ended.id, ended.status) == (first, "failed")
        assert "damaged" in ended.reason and "submit it again" in ended.reason

    asyncio.run(scenario())
    assert [t.id for t in store.unfinished()] == [second], "it is tried once"
    if column in ("spec", "engine") and how is not unknown_launcher:
        with pytest.raises(StoreError, match="trainer 1 is damaged in the store"):
            store.trainer(first)
    store.submit(replace(SPEC, name="damaged"), 2.0)
    store.close()


def test_events_that_are_damaged_are_shown_as_far_as_they_can_be_read(tmp_path: Path) -> None:
    store = SqlStore(tmp_path / "bftrainer.db")
    for time in (1.0, 2.0):
        store.record(NodesChanged(time=time), [], None, [], None, frozenset())
    with sqlite3.connect(tmp_path / "bftrainer.db") as connection:
        connection.execute("UPDATE events SET data = '{' WHERE id = 1")
    connection.close()
    assert [row["data"] == {} for row in store.rows("events", None)] == [True, False]
    store.close()


def test_a_value_larger_than_any_of_ours_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "bftrainer.db"
    store = SqlStore(path)
    store.submit(SPEC, 1.0)
    spoil(path, 1, "spec", "x" * (database.MOST_VALUE_BYTES + 1))
    with pytest.raises(StoreError, match="too big; bftrainer writes no value of that size"):
        store.unfinished()
    store.close()


def test_ends_of_unknown_kinds_count_as_failures(tmp_path: Path) -> None:
    path = tmp_path / "bftrainer.db"
    store = SqlStore(path)
    with sqlite3.connect(path) as connection:
        for status, count in (("failed", 3), ("unheard of", 2), ("completed", "many")):
            connection.execute(
                "INSERT INTO ended (user, status, count) VALUES ('ann', ?, ?)", (status, count)
            )
    connection.close()
    assert store.count_ended_by_user() == {"ann": {"failed": 5, "completed": 0}}
    assert store.count_ended("ann") == store.count_ended() == {"failed": 5, "completed": 0}
    store.close()


# --- tables without end --------------------------------------------------------------------------


def without_end(path: Path, table: str) -> None:
    """Put a view in place of a table that comes to no end."""
    with sqlite3.connect(path) as c:
        columns = ", ".join(f"n AS {row[1]}" for row in c.execute(f"PRAGMA table_info({table})"))
        c.execute(f"DROP TABLE {table}")
        c.execute(
            f"CREATE VIEW {table} AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "  # noqa: S608
            f"SELECT {columns} FROM r"
        )
    c.close()


def test_what_the_daemon_itself_reads_comes_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "OWN_S", 0.1)
    monkeypatch.setattr(sql, "TIDY_S", 0.1)
    path = tmp_path / "bftrainer.db"
    store = SqlStore(path)
    for table in ("trainers", "memory", "reports"):
        without_end(path, table)
    for read in (store.unfinished, lambda: store.get("key"), lambda: store.trim(1, 10)):
        with pytest.raises(StoreError, match=r"longer than 0\.1 s; it is damaged: restore it from a backup"):
            read()
    store.close()


def test_a_deletion_without_end_keeps_nothing_from_being_stored_when_the_daemon_ends(tmp_path: Path) -> None:
    own = settings_in(tmp_path, max_store_mb=1)
    store = SqlStore(own.database)
    for number in range(3000):
        store.put(f"key {number}", "x" * 500)
    without_end(own.database, "reports")
    daemon = Daemon(own, NoNodes(), store, WallClock())  # type: ignore[arg-type]

    async def scenario() -> None:
        daemon.journal.remember("first", "value")
        tidying = daemon.journal._writer
        await until_true(lambda: tidying._backlog.waiting() == 0 and tidying._in_flight is None)
        await until_true(lambda: store._engine.pool.checkedout() == 1)  # type: ignore[attr-defined]
        daemon.journal.remember("last", "value")
        store.interrupt()
        await daemon.journal.close()

    asyncio.run(scenario())
    store.close()
    with sqlite3.connect(own.database) as c:
        assert c.execute("SELECT value FROM memory WHERE key = 'last'").fetchall() == [("value",)]
    c.close()


@pytest.mark.parametrize("table", ["memory", "trainers", "ended"])
def test_a_daemon_that_reads_without_end_ends_when_it_is_told_to(tmp_path: Path, table: str) -> None:
    own = settings_in(tmp_path, reconnect_s=1e-9)
    store = SqlStore(own.database)
    daemon = Daemon(own, NoNodes(), store, WallClock())  # type: ignore[arg-type]
    without_end(own.database, table)

    async def scenario() -> None:
        reading = asyncio.create_task(daemon.run())
        await until_true(lambda: store._engine.pool.checkedout() == 1)  # type: ignore[attr-defined]
        daemon.stop()
        async with asyncio.timeout(20):
            await reading
        await until_true(lambda: store._engine.pool.checkedout() == 0, 10)  # type: ignore[attr-defined]

    asyncio.run(scenario())
    store.close()


ODD_STUDIES = [
    ("submitted_at", "never"),
    ("submitted_at", 9e999),
    ("ended_at", "x"),
    ("reason", b"\xff"),
]


@pytest.mark.parametrize(("column", "value"), ODD_STUDIES)
def test_a_damaged_column_of_a_study_has_a_value_of_its_kind(
    tmp_path: Path, column: str, value: object
) -> None:
    path = tmp_path / "bftrainer.db"
    store = SqlStore(path)
    texts = {key: key for key in ("user", "name", "text", "file", "base", "status", "reason")}
    whole = StoredStudy(id=1, **texts, submitted_at=1.0, ended_at=2.0, brief={})
    store.studies.keep(whole, ())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as c:
        c.execute(f"UPDATE studies SET {column} = ?", (value,))  # noqa: S608  a column of ours
    found = store.studies.find("1")
    assert found == replace(whole, **{column: "" if column in texts else 0.0})
    store.close()


ODD_BRIEFS = [
    ("submitted_at", "never", "submitted_at", 0.0),
    ("ended_at", "x", "ended_at", 0.0),
    ("samples", "many", "samples", 0),
    ("rate", "fast", "rate", 0.0),
    ("`of`", "x", "of", None),
    ("reason", b"\xff", "reason", ""),
    ("metrics", '{"loss": "low", "accuracy": 0.5}', "metrics", {"accuracy": 0.5}),
]


@pytest.mark.parametrize(("column", "value", "field", "shown"), ODD_BRIEFS)
def test_a_damaged_column_of_a_list_has_a_value_of_its_kind(
    tmp_path: Path, column: str, value: object, field: str, shown: object
) -> None:
    path = tmp_path / "bftrainer.db"
    store = SqlStore(path)
    store.submit(SPEC, 1.0)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as c:
        c.execute(f"UPDATE trainers SET {column} = ?", (value,))  # noqa: S608  a column of ours
    (found,) = store.ended_summaries(10) or store.unfinished_summaries()
    assert getattr(found, field) == shown
    store.close()


# --- the file ------------------------------------------------------------------------------------


def test_a_database_that_was_cut_off_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "bftrainer.db"
    store = SqlStore(path)
    for number in range(200):
        store.submit(replace(SPEC, name=f"t{number}"), 0.0)
    store.close()
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StoreError, match=r"malformed; restore it from a backup, or save what can be read"):
        SqlStore(path).unfinished()


def test_a_table_whose_name_is_no_text_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "bftrainer.db"
    SqlStore(path).close()
    path.write_bytes(path.read_bytes().replace(b"alembic_version", b"alemb\x85c_version", 1))
    with pytest.raises(StoreError, match=r"malformed database schema .*; restore it from a backup"):
        SqlStore(path)


def test_what_is_no_database_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "bftrainer.db").write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match="not a database; restore it from a backup, or move the file away"):
        SqlStore(tmp_path / "bftrainer.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bftrainer.db"
    SqlStore(path).close()
    path.chmod(0o400)
    with pytest.raises(StoreError, match="must be able to write the file"):
        SqlStore(path).put("key", "value")


def test_a_folder_in_place_of_the_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "bftrainer.db").mkdir()
    with pytest.raises(StoreError, match="not a regular file; move it away"):
        SqlStore(tmp_path / "bftrainer.db")


def test_a_link_is_followed_and_the_log_watched_beside_the_file(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "bftrainer.db").symlink_to(elsewhere / "large.db")
    store = SqlStore(tmp_path / "bftrainer.db")
    store.put("key", "value")
    assert database.log_bytes(store._path) > 0
    store.close()


def test_a_file_that_is_taken_away_or_replaced_is_not_written_to_nowhere(tmp_path: Path) -> None:
    path, aside = tmp_path / "bftrainer.db", tmp_path / "aside.db"
    store = SqlStore(path)
    store.put("key", "before")
    path.rename(aside)
    with pytest.raises(StoreError, match="put it back, or restart the daemon"):
        store.put("key", "lost")
    shutil.copy(aside, path)
    with pytest.raises(StoreError, match="is another file than the one that was opened"):
        store.put("key", "lost")
    aside.rename(path)
    store.put("key", "after")
    assert store.get("key") == "after"
    store.close()


def test_a_start_on_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    """A bound on files' sizes stands in for the disk: SQLite says the same of both."""
    code = (
        "import resource, sys; from pathlib import Path; from bftrainer.store.sql import SqlStore\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); SqlStore(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, tmp_path / "a.db"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "free some space there, and start the daemon again" in done.stderr.splitlines()[-1], done.stderr


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """Another process's connection, which keeps even readers out of bftrainer.db."""
    path = tmp_path / "bftrainer.db"
    SqlStore(path).close()
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA journal_mode=DELETE").fetchall()
    other.execute("BEGIN EXCLUSIVE")
    yield other
    other.close()


def test_a_start_waits_for_a_backup_to_end(tmp_path: Path, locked: sqlite3.Connection) -> None:
    release = threading.Timer(0.5, locked.execute, ["COMMIT"])
    release.start()
    SqlStore(tmp_path / "bftrainer.db").close()
    release.join()


def test_a_start_does_not_wait_for_ever(
    tmp_path: Path, locked: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "START_S", 0.1)
    with pytest.raises(StoreError, match="database is locked; another process uses it; fuser names it"):
        SqlStore(tmp_path / "bftrainer.db")


@pytest.mark.parametrize("kind", ["folder", "nowhere", "circle", "device", "pipe"])
def test_what_is_no_file_is_no_database_and_nothing_is_made_elsewhere(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bftrainer.db"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"nowhere": tmp_path / "no" / "x", "circle": path, "device": Path("/dev/zero")}[kind])
    with pytest.raises(StoreError, match=f"{path}: .*(not a regular file|leads to no file)"):
        SqlStore(path)
    assert not (tmp_path / "no").exists()
