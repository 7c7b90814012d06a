"""What is asked of a large store reads indexes; events come with their decisions however many they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import pytest
import sqlalchemy as sa

from bftrainer.errors import StoreError, UnstorableError
from bftrainer.model import events
from bftrainer.model.actions import StartWorker
from bftrainer.model.events import NodesChanged, TrainerCancelled
from bftrainer.store import database, queries, sql
from bftrainer.store.sql import SqlStore
from bftrainer.testing.store import PAUSE, PROGRESS, SPEC, end

OF_MACHINE = {"MachineChanged.nodes", "MachineChanged.gpus", "GpusChanged.nodes"}
OF_MACHINE |= {"NodesChanged.facts", "NodesChanged.jobs"}  # main jobs by their numbers, as in the pool


def test_it_is_known_of_each_table_in_an_event_whether_it_is_by_user() -> None:
    """Events that are about no trainer are everybody's: what others have in them is not."""
    own = [(kind, field) for kind in get_args(events.Event) for field in fields(kind)]
    tables = {f"{kind.__name__}.{field.name}" for kind, field in own if "Mapping" in str(field.type)}
    by_user = {f"{kind}.{name}" for kind, names in events.BY_USER.items() for name in names}
    assert tables == OF_MACHINE | by_user


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    made = SqlStore(tmp_path / "bftrainer.db")
    yield made
    made.close()


ASKED: dict[str, Callable[[SqlStore], object]] = {
    "unfinished": lambda store: store.unfinished(),
    "trainer": lambda store: store.trainer(3),
    "latest_named": lambda store: store.latest_named("a"),
    "unfinished_summaries": lambda store: store.unfinished_summaries(),
    "unfinished_summaries of a user": lambda store: store.unfinished_summaries("alice"),
    "ended_summaries": lambda store: store.ended_summaries(100, 200),
    "ended_summaries of a user": lambda store: store.ended_summaries(100, 200, "alice"),
    "events of a trainer": lambda store: store.rows("events", 20, 3),
    "reports of a trainer": lambda store: store.rows("reports", 20, 3),
    "pauses of a trainer": lambda store: store.rows("pauses", 20, 3),
    "events of a user": lambda store: store.rows("events", 20, user="alice"),
    "reports of a user": lambda store: store.rows("reports", 20, user="alice", before=1000),
    "pauses of a user": lambda store: store.rows("pauses", 20, user="nobody"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_nothing_reads_a_whole_table_or_sorts_it(store: SqlStore, asked: str) -> None:
    statements: list[tuple[str, tuple[object, ...]]] = []

    @sa.event.listens_for(store._engine, "before_cursor_execute")
    def note(_c: object, _cursor: object, text: str, values: tuple[object, ...], *_: object) -> None:
        statements.append((text, values))

    ASKED[asked](store)
    sa.event.remove(store._engine, "before_cursor_execute", note)
    assert statements
    with store._engine.connect() as c:
        for text, values in statements:
            plan = [row[3] for row in c.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)]
            scans = [step for step in plan if step.startswith("SCAN") and not step.startswith("SCAN anon_")]
            assert not scans, (text, plan)
            big = [step for step in plan if step == "USE TEMP B-TREE FOR ORDER BY"]
            assert not big or "LIST SUBQUERY" in " ".join(plan) or asked.startswith("unfinished"), plan


@pytest.mark.parametrize("user", [None, "alice"])
def test_events_come_with_their_decisions_however_many_they_are(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, user: str | None
) -> None:
    monkeypatch.setattr(queries, "CHUNK", 3)
    ids = [store.submit(replace(SPEC, name=f"t{n}", user="alice"), 0.0) for n in range(10)]
    for id_ in ids:
        start = StartWorker(trainer=id_, generation=1, node=f"n{id_}")
        store.record(NodesChanged(time=float(id_)), [], None, [start, start], None, frozenset())
    found = store.rows("events", 8, None, user)
    assert [[action["trainer"] for action in event["actions"]] for event in found] == [
        [i, i] for i in ids[2:]
    ]
    assert [event["plan"] for event in found] == [None] * 8


def test_events_of_a_trainer_do_not_bring_the_decisions_between_them(store: SqlStore) -> None:
    """The first and the last event of a trainer may be months apart."""
    id_ = store.submit(SPEC, 0.0)
    start = StartWorker(trainer=id_, generation=1, node="n1")
    store.record(TrainerCancelled(time=0.0, trainer=id_), [], None, [start], None, frozenset())
    for time in range(1, 50):
        store.record(NodesChanged(time=float(time)), [], None, [start], None, frozenset())
    store.record(TrainerCancelled(time=50.0, trainer=id_), [], None, [start], None, frozenset())
    read: list[int] = []

    @sa.event.listens_for(store._engine, "after_cursor_execute")
    def count(_c: object, cursor: object, text: str, values: tuple[object, ...], *_: object) -> None:
        if "FROM actions" in text:
            read.append(len(values))

    found = store.rows("events", 20, id_)
    assert [len(event["actions"]) for event in found] == [1, 1]
    assert read == [2], "only the actions of these two events are read"


def test_of_an_event_a_user_is_told_its_own_part(store: SqlStore) -> None:
    barred = events.UsersBarred(
        time=4.0, users={"bob": "why", "alice": "why"}, nodes={"alice": frozenset({"n1"})}
    )
    counted = events.GpusChanged(time=5.0, nodes={"n1": 4}, told={"alice": {"n1": 2}}, reason="for alice")
    for event in (barred, counted):
        store.record(event, [], None, [], None, frozenset())
    first, second = (row["data"] for row in store.rows("events", 10, user="bob"))
    assert (first["users"], first["nodes"]) == ({"bob": "why"}, {})
    assert (second["told"], second["nodes"], second["reason"]) == ({}, {"n1": 4}, "")
    first, second = (row["data"] for row in store.rows("events", 10, user="alice"))
    assert (first["users"], second["reason"]) == ({"alice": "why"}, "for alice")
    first, second = (row["data"] for row in store.rows("events", 10))
    assert (first["nodes"], second["told"]) == ({"alice": ["n1"]}, {"alice": {"n1": 2}})


def test_what_a_user_ended_is_counted_apart(store: SqlStore) -> None:
    for user in ("alice", "bob", "bob"):
        end(store, store.submit(replace(SPEC, user=user), 0.0), 1.0)
    assert sum(store.count_ended().values()) == 3
    assert sum(store.count_ended("bob").values()) == 2


def test_reports_of_no_trainers_are_stored_as_none(store: SqlStore) -> None:
    store.progress([])
    store.progress([PROGRESS])
    store.pause(PAUSE)
    assert [len(store.rows(what, None)) for what in ("reports", "pauses", "events")] == [1, 1, 0]
    assert store.rows("reports", None, None, "alice") == [], "its trainer is nobody's"


@pytest.mark.parametrize(
    "value",
    ["\ud800", 2**63, object(), None, float("nan"), "x" * (database.MOST_VALUE_BYTES + 1)],
    ids=["half a pair", "too large", "no value", "none", "no number", "too long"],
)
def test_a_value_that_sqlite_never_takes_is_not_to_be_tried_again(store: SqlStore, value: str) -> None:
    with pytest.raises(UnstorableError, match="a value cannot be stored"):
        store.put("key", value)
    store.put("key", "value")
    assert store.get("key") == "value"


def test_a_decision_may_have_more_actions_than_a_query_names(store: SqlStore) -> None:
    @sa.event.listens_for(store._engine, "connect")
    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, queries.CHUNK + 2)

    store._engine.dispose()
    starts = [StartWorker(trainer=1, generation=1, node=f"n{n}") for n in range(2 * queries.CHUNK + 1)]
    store.performed(store.record(NodesChanged(time=1.0), [], None, starts, None, frozenset()), 2.0)
    (event,) = store.rows("events", 1)
    assert {action["performed_at"] for action in event["actions"]} == {2.0}


def test_a_query_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "STEPS", 1)
    path = tmp_path / "x.db"
    store = SqlStore(path, query_s=1e-9)
    id_ = store.submit(SPEC, 1.0)
    store.pause(replace(PAUSE, trainer=id_))
    for asked in (
        lambda: store.rows("pauses", 10),
        lambda: store.latest_named(SPEC.name),
        lambda: store.ended_summaries(10),
    ):
        with pytest.raises(StoreError, match=r"the query took longer than 1e-09 s; ask for less"):
            asked()
    assert len(store.unfinished()) == 1, "what the daemon itself asks has all the time that it needs"
    store.close()
    patient = SqlStore(path, query_s=60.0)
    assert len(patient.rows("pauses", 10)) == 1
    patient.close()


def test_when_the_daemon_ends_nothing_is_read_any_more_and_all_is_written(store: SqlStore) -> None:
    id_ = store.submit(SPEC, 0.0)
    store.interrupt()
    for ask in (store.unfinished, store.trainers, lambda: store.get("key"), lambda: store.rows("events", 1)):
        with pytest.raises(StoreError, match="nothing is read any more: the daemon ends"):
            ask()
    end(store, id_, 1.0)
    again = SqlStore(store._path)
    assert again.unfinished() == [] and len(again.trainers()) == 1
    again.close()
