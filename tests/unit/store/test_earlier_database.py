"""A real database of version 0.9.0 opens: of a daemon that was killed while a trainer ran."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.api.callers import Caller
from bftrainer.api.listing import LEFT_OUT
from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.engine.restore import restore
from bftrainer.errors import StoreError
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import TrainerStatus
from bftrainer.replay.calibrate import history
from bftrainer.settings.values import Settings
from bftrainer.store.sql import SqlStore
from bftrainer.testing.memory import Machine, MemoryScheduler
from bftrainer.testing.store import START
from tests.support.nodes_world import settings_in

DATA = Path(__file__).parent / "data" / "at_0009.db.gz"
LONG, WAITS = 2, 4
"""The trainers that had not ended."""
WHOLE = "SELECT * FROM {} ORDER BY 1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy, where a daemon with this state directory looks for it."""
    database = Settings(state_dir=tmp_path).database
    database.write_bytes(gzip.decompress(DATA.read_bytes()))
    return database


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    opened = SqlStore(path)
    yield opened
    opened.close()


def raw(path: Path, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute(query).fetchall()
    connection.close()
    return found


def test_no_row_is_lost(path: Path) -> None:
    tables = ("trainers", "events", "plans", "actions", "pauses", "reports", "memory")
    before = {table: raw(path, WHOLE.format(table)) for table in tables}
    SqlStore(path).close()
    SqlStore(path).close()
    for table in tables:
        after = raw(path, WHOLE.format(table))
        columns = len(before[table][0])  # later versions add some at the end
        assert [row[:columns] for row in after] == before[table]
    assert raw(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_database_from_before_the_first_release_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0008'")
    connection.close()
    with pytest.raises(StoreError, match=r"version '0008' is unknown here; .*move the file away"):
        SqlStore(path)


def test_starts_of_main_jobs_are_kept_beside_earlier_ones(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO main_starts (time, job, nodes, cores, wait_s, affected, given, requeued) "
            "VALUES (1, '16', 1, 0, 0.5, 'taken', 0, 0)"
        )
    connection.close()
    store = SqlStore(path)
    store.main_started([replace(START, on=frozenset({"n1", "n2"}))], 10)
    assert [(start.job, start.where) for start in store.main_starts(0.0, 9)] == [("16", ""), ("17", "n[1-2]")]
    store.close()


def test_trainers_are_listed(store: SqlStore) -> None:
    ends = {t.id: (t.name, t.status, t.samples) for t in store.ended_summaries(10)}
    assert ends == {
        1: ("spirals", TrainerStatus.COMPLETED, 250_000),
        3: ("waits", TrainerStatus.CANCELLED, 0),
    }
    unfinished = {t.id: (t.name, t.status, t.work) for t in store.unfinished_summaries()}
    assert unfinished == {
        LONG: ("long", TrainerStatus.RUNNING, 90_000_000),
        WAITS: ("waits", TrainerStatus.WAITING, 1_200_000),
    }
    assert store.count_ended() == {TrainerStatus.COMPLETED: 1, TrainerStatus.CANCELLED: 1}
    assert store.latest_named("waits") == {"root": WAITS}
    assert [t.id for t in store.trainers()] == [1, 2, 3, 4]


def test_decisions_are_explained(store: SqlStore) -> None:
    events = store.rows("events", None)
    assert [len(events), events[0]["kind"], events[-1]["kind"]] == [39, "NodesChanged", "WorkersReady"]
    plans = [event["plan"] for event in events if event["plan"] is not None]
    assert len(plans) == 20 and {plan["proven"] for plan in plans} == {True}
    assert sum(len(event["actions"]) for event in events) == 22
    assert {pause["kind"] for pause in store.rows("pauses", None, LONG)} >= {"join", "leave"}
    assert store.rows("reports", 1, LONG)[0]["metrics"]["accuracy"] == pytest.approx(0.998, abs=1e-3)


def test_a_restarted_engine_goes_on_with_it(store: SqlStore) -> None:
    found = store.unfinished()
    state = restore(EngineSettings(), frozenset({"n01", "n02"}), [t.engine for t in found])
    trainer = state.trainer(LONG)
    assert trainer is not None
    assert (trainer.members, trainer.published, trainer.started) == (("n02",), 12, {"n02": 11})
    assert [n for _, n, _ in trainer.observed.speeds] == [1, 2, 3]
    assert state.trainer(WAITS) is not None and state.trainer(1) is None
    assert store.get("mark") == "ff0394", "agents know the store by it"
    (run,) = json.loads(store.get("runs") or "")
    assert Settings.model_validate(run["settings"]).scheduler == "local"


def test_a_restarted_daemon_goes_on_with_it(store: SqlStore, tmp_path: Path) -> None:
    """Its nodes are gone: the trainer that ran there waits, and the store says why."""

    async def scenario() -> None:
        own = settings_in(tmp_path, reconnect_s=1e-9)
        scheduler = MemoryScheduler(Machine({"n01", "n02", "n03"}), WallClock().now)
        daemon = Daemon(own, scheduler, store)
        await daemon.recovery.load()
        daemon.load_index()
        await daemon.recovery.run(daemon.agents)
        for event in await daemon.mailbox.batch():
            await daemon.runner.take(event)
        listed = await daemon.service.trainers(Caller("root", 0, admin=True), 100, 0, 0)
        every = json.loads(listed.body)
        assert ([(t["name"], t["status"]) for t in every], listed.headers[LEFT_OUT]) == (
            [("spirals", "completed"), ("long", "waiting"), ("waits", "cancelled"), ("waits", "waiting")],
            "0",
        )
        shown = await daemon.service.show(Caller("root", 0, admin=True), "long")
        assert (shown["samples"], shown["scalability"]["may_ask_for"]) == (every[1]["samples"], 4)

    asyncio.run(scenario())
    (event,) = store.rows("events", 1)
    assert (event["data"]["left"], event["data"]["reason"]) == (["n02"], "gone after a restart")
    assert [action["kind"] for action in event["actions"]] == []


def test_it_can_be_replayed(path: Path) -> None:
    found = history.load(path)
    assert [submission.spec.name for submission in found.submissions] == [
        "spirals",
        "long",
        "waits",
        "waits",
    ]
    assert found.fitted[0].processed >= 250_000
