"""What befalls the daemon's database: locked, full, damaged, under its hands."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.files import strangers_beside
from bftrainer.replay.calibrate.history import load
from bftrainer.replay.sweep.results import Results
from bftrainer.search.optuna.export import in_storage
from bftrainer.search.optuna.mirror import Mirror
from tests.support.hostile.attacks import attacking
from tests.support.hostile.world import SOON_S, World

LOCKED_S = 4.0


@contextlib.contextmanager
def database(world: World) -> Iterator[sqlite3.Connection]:
    """The daemon's database, for somebody else."""
    with contextlib.closing(sqlite3.connect(world.state / "bftrainer.db", isolation_level=None)) as c:
        c.execute("PRAGMA busy_timeout=10000")
        yield c


def test_main_jobs_do_not_wait_for_a_locked_database(world: World) -> None:
    with world.watched() as watch:
        with attacking("lock", database=world.state / "bftrainer.db", seconds=LOCKED_S):
            began = time.monotonic()
            watch.until_jobs(6)
            assert world.get("status")["pid"] == watch.pid
            time.sleep(max(0.0, began + LOCKED_S + 1.0 - time.monotonic()))
        world.other("next")
    watch.assert_unharmed()
    world.cancel("next")


def test_main_jobs_do_not_wait_for_a_slow_database(world: World) -> None:
    with (
        world.watched() as watch,
        attacking("bursts", database=world.state / "bftrainer.db", locked_s=0.8, free_s=0.1),
    ):
        watch.until_jobs(6)
    watch.assert_unharmed()


def test_rows_that_make_no_sense_harm_nothing(world: World) -> None:
    world.submit("odd", "x.py", n_max=1000, n_min=1000)
    with world.watched() as watch:
        with database(world) as c:
            c.execute("""UPDATE trainers SET spec = '{"name": "\\ud800"', engine = 'x' WHERE name = 'odd'""")
            c.execute("UPDATE events SET data = '[' WHERE id % 2 = 0")
            c.execute("UPDATE reports SET metrics = 'x', time = 'never' WHERE id % 2 = 0")
            c.execute("UPDATE pauses SET kind = 'x', pause_s = 'long'")
        for path in ("status", "trainers", "events", "pauses", "reports", "pool", "trainers/odd"):
            with contextlib.suppress(Exception):
                world.get(path)
        watch.until_jobs(3)
    watch.assert_unharmed()


STUDY = {
    "trainer": {"command": ["true", "{p}"], "nodes": {"min": 10, "max": 20}},
    "space": {"p": {"float": [0.0, 1.0]}},
    "metric": "m",
    "trials": 4,
    "budget": 10,
    "deadline": "1h",
}
NONSENSE = {
    "time": "UPDATE studies SET submitted_at = 'never' WHERE name = 'time'",
    "figures": """UPDATE studies SET brief = '{"priority": "high", "added": ["x"]}' WHERE name = 'figures'""",
    "rung": "UPDATE trials SET data = json_set(data, '$.rung', 99) WHERE study = STUDY",
    "values": "UPDATE trials SET data = json_set(data, '$.params', json('[]')) WHERE study = STUDY",
    "trainer": "UPDATE trainers SET engine = 7, `of` = 'x' WHERE name LIKE 'trainer.%'",
    "whole": "UPDATE events SET time = x'ff' WHERE id % 2 = 0",
}
"""What befalls the study of each name; the last one is as it was."""


def test_a_daemon_starts_over_studies_that_make_no_sense(world: World) -> None:
    numbers = {}
    for name in NONSENSE:
        body = {"spec": json.dumps({**STUDY, "name": name}), "name": "a.yaml", "base": "/"}
        numbers[name] = world.client.call("POST", "studies", body=body)["id"]
    world.until(
        lambda: {f"{name}.1.1" for name in NONSENSE} <= {own["name"] for own in world.get("trainers")},
        SOON_S,
        "the trials have trainers",
    )
    world.kill_daemon()
    with database(world) as c:
        for name, order in NONSENSE.items():
            c.execute(order.replace("STUDY", str(numbers[name])))
    world.start()
    found = {row["name"]: row["status"] for row in world.get("studies", limit=20)}
    assert found["whole"] == found["trainer"] == "running"
    assert found["figures"] == found["rung"] == "ended"
    for path in ("status", "trainers", "events", "studies/whole"):
        assert world.get(path), path
    for name in ("whole", "trainer", "time", "values"):
        world.client.call("POST", f"studies/{name}/cancel")
    world.good()


def test_a_database_that_is_cut_off_harms_no_main_job(world: World) -> None:
    path = world.state / "bftrainer.db"
    with world.watched() as watch:
        for file in (path, Path(f"{path}-wal")):
            os.truncate(file, 1000)
        watch.until_jobs(5)
    watch.assert_served()
    world.kill_daemon()  # nothing that is left of its store can be read


def _with_a_journal(folder: Path, name: str, deletes: Path) -> Path:
    """A database, and beside it a journal at which SQLite deletes a file: it names this as the one of all
    databases of its transaction."""
    database = folder / name
    with contextlib.closing(sqlite3.connect(database)) as made:
        made.execute("CREATE TABLE t (x)")
    magic, file = bytes.fromhex("d9d505f920a163d7"), str(deletes).encode()
    head = magic + struct.pack(">5I", 0, 0, database.stat().st_size // 4096, 512, 4096)
    end = struct.pack(">I", 0x40000000 // 4096 + 1) + file + struct.pack(">2I", len(file), sum(file)) + magic
    database.with_name(f"{name}-journal").write_bytes(head.ljust(512, b"\0") + end)
    return database


def _check_nobody_opens(folder: Path, private: Path) -> None:
    database = _with_a_journal(folder, "bftrainer.db", private)
    _with_a_journal(folder, "results.sqlite", private)
    study: dict[str, Any] = {"id": 1, "name": "s", "submitted_at": 0.0}
    for use in (
        lambda: load(folder),
        lambda: in_storage(study, f"sqlite:///{database}"),
        lambda: Mirror(f"sqlite:///{database}").update(study),
        lambda: Results(folder),
    ):
        with pytest.raises(BftrainerError, match="strangers can put files"):
            use()
    assert private.read_text() == "mine"


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_no_database_is_opened_where_strangers_put_a_journal_beside_it(tmp_path: Path, mode: int) -> None:
    folder, private = tmp_path / "shared", tmp_path / "private"
    private.write_text("mine")
    folder.mkdir()
    folder.chmod(mode)
    _check_nobody_opens(folder, private)


def test_no_database_is_opened_in_a_folder_that_strangers_can_exchange(tmp_path: Path) -> None:
    above, private = tmp_path / "shared", tmp_path / "private"
    private.write_text("mine")
    folder = above / "own"
    folder.mkdir(parents=True)
    above.chmod(0o777)
    _check_nobody_opens(folder, private)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(("reader", "refused"), [(0, True), (12345, False)])
def test_a_folder_of_anothers_on_the_way_is_trusted_by_users_and_not_by_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: int, refused: bool
) -> None:
    """A group's head has the folder in which those of the members lie."""
    own = tmp_path / "head" / "own"
    own.mkdir(parents=True)
    os.chown(own.parent, 54321, -1)
    os.chown(own, reader, -1)
    monkeypatch.setattr("os.geteuid", lambda: reader)
    assert bool(strangers_beside(own / "bftrainer.db")) is refused


def test_a_database_is_opened_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can write beside a link could exchange it after somebody has looked where it leads."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    shared.chmod(0o777)
    (shared / "bftrainer.db").symlink_to(own / "bftrainer.db")
    (own / "bftrainer.db").touch()
    opened: list[str] = []

    def told(path: object, **_: object) -> None:
        opened.append(str(path))
        raise BftrainerError("told")

    monkeypatch.setattr("bftrainer.replay.calibrate.history.SqlStore", told)
    monkeypatch.setattr("optuna.storages.RDBStorage", told)
    monkeypatch.setattr("bftrainer.search.optuna.mirror.RDBStorage", told)
    study: dict[str, Any] = {"id": 1, "name": "s", "submitted_at": 0.0}
    url = f"sqlite:///{shared / 'bftrainer.db'}"
    for use in (lambda: load(shared), lambda: in_storage(study, url), lambda: Mirror(url).update(study)):
        with pytest.raises(BftrainerError, match="told"):
            use()
    real = str(own / "bftrainer.db")
    assert opened == [real, f"sqlite:///{real}", f"sqlite:///{real}"]
