"""The store has a bound: beyond it the oldest rows of what takes the most go before their time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.errors import StoreError
from bftrainer.model.actions import Ended, StartWorker
from bftrainer.model.events import NodesChanged
from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.model.trainer import TrainerSpec, TrainerStatus
from bftrainer.store import database, pruning
from bftrainer.store.pruning import used
from bftrainer.store.sql import SqlStore
from bftrainer.testing.store import PAUSE, PROGRESS, SPEC, end

MB = 1_000_000
STUDY = StoredStudy(
    id=0,
    user="mallory",
    name="s",
    text="",
    file="",
    base="",
    status="ended",
    reason="",
    submitted_at=0.0,
    ended_at=1.0,
    brief={},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bftrainer.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    made = SqlStore(path)
    yield made
    made.close()


def holds(store: SqlStore) -> int:
    with store._engine.connect() as connection:
        return used(connection)


def flood(store: SqlStore, kind: str, count: int) -> None:
    """Store `count` rows of a kind, 2 kB each or more."""
    for number in range(count):
        long = f"{number:04}" + "x" * 2000
        if kind == "reports":
            store.progress([replace(PROGRESS, time=float(number), metrics={long: 1.0})])
        elif kind == "events":
            start = StartWorker(trainer=1, generation=1, node="n1")
            store.record(NodesChanged(time=float(number), reason=long), [], None, [start], None, frozenset())
        elif kind == "pauses":
            store.pause(replace(PAUSE, time=float(number), node=long))
        else:
            id_ = store.submit(
                TrainerSpec(name=f"many{number}", command=(long,), n_min=1, n_max=1, user="mallory"), 0.0
            )
            store.record(
                NodesChanged(time=float(number)),
                [],
                None,
                [],
                Ended(trainer=id_, status=TrainerStatus.CANCELLED),
                frozenset(),
            )


@pytest.mark.parametrize("kind", ["reports", "events", "pauses", "trainers"])
def test_a_flood_costs_its_own_kind_only(store: SqlStore, kind: str) -> None:
    own = store.submit(replace(SPEC, user="alice"), 0.0)
    done = store.submit(replace(SPEC, user="alice", name="done"), 0.0)
    end(store, done, 1e9)  # the latest of all
    store.progress([replace(PROGRESS, trainer=own)])
    store.pause(PAUSE)
    flood(store, kind, 400)
    assert store.trim(10 * MB, 50) is None
    steps = 0
    while (trimmed := store.trim(MB // 2, 20)) is not None:
        steps += 1
        assert trimmed[0] == kind and 1 <= trimmed[1] <= 20, "a few at a time"
    assert steps and holds(store) <= MB // 2
    kept = {what: len(store.rows(what, None)) for what in ("events", "reports", "pauses")}
    assert all(kept.values()), "others have lost nothing"
    if kind == "events":
        events = store.rows("events", None)
        assert events[-1]["time"] == 399.0, "the oldest go first"
        assert all(len(event["actions"]) == 1 for event in events[1:])
    elif kind == "trainers":
        ended = store.ended_summaries(1000)
        assert ended[0].name == "done" and ended[1].name == "many399"
        assert sum(store.count_ended().values()) == len(ended), "those that are gone are counted no more"
    assert [t.id for t in store.unfinished()] == [own]


@pytest.mark.parametrize("kind", ["reports", "pauses"])
def test_what_one_users_trainers_tell_pushes_out_nothing_of_others(store: SqlStore, kind: str) -> None:
    mallorys, alices = (store.submit(replace(SPEC, user=user), 0.0) for user in ("mallory", "alice"))
    assert mallorys == PROGRESS.trainer == PAUSE.trainer
    for number in range(20):
        store.progress([replace(PROGRESS, trainer=alices, time=float(number))])
        store.pause(replace(PAUSE, trainer=alices, time=float(number)))
    flood(store, kind, 400)
    while (trimmed := store.trim(MB // 2, 20)) is not None:
        assert trimmed[0] == kind and 1 <= trimmed[1] <= 20, "a few at a time"
    assert len(store.rows(kind, None, alices)) == 20
    left = [row["time"] for row in store.rows(kind, None, mallorys)]
    assert left == sorted(left) and left[-1] == 399.0 and left[0] > 0.0, "the oldest have gone"


@pytest.mark.parametrize("kind", ["trainers", "studies"])
def test_who_has_the_most_gives_way_first(store: SqlStore, kind: str) -> None:
    """However old what others have is: it may be all that is left of their work."""
    for number in range(5):
        end(store, store.submit(replace(SPEC, user="alice", name=f"old{number}"), 0.0), float(number))
    study = replace(STUDY, id=1, user="alice", name="old")
    store.studies.keep(study, [StoredTrial(number=n, data={}) for n in range(20)])
    if kind == "trainers":
        flood(store, "trainers", 400)
    for id_ in range(2, 100) if kind == "studies" else ():
        own = [StoredTrial(number=n, data={"x": "x" * 2000}) for n in range(5)]
        store.studies.keep(replace(STUDY, id=id_, ended_at=100.0 + id_), own)
    while (trimmed := store.trim(MB // 2, 20)) is not None:
        assert trimmed[0] == kind
    assert len(store.ended_summaries(1000, 0, "alice")) == 5 and store.studies.find("old") is not None


def test_where_nothing_is_left_to_delete_it_ends(store: SqlStore) -> None:
    own = store.submit(replace(SPEC, user="alice"), 0.0)
    done = store.submit(replace(SPEC, user="bob"), 0.0)
    end(store, done, 1.0)
    for _ in range(3):
        store.trim(1, 100)
    assert store.trim(1, 100) is None
    assert [t.id for t in store.unfinished()] == [own]
    assert store.count_ended_by_user() == {}, "of users that have no trainer any more nothing stays"


def test_the_studies_that_ended_first_go_as_a_whole_and_one_that_runs_stays(store: SqlStore) -> None:
    long = {"params": "x" * 2000}
    for id_ in range(1, 6):
        ended_at = None if id_ == 2 else 100.0 - id_
        study = replace(STUDY, id=id_, name=f"s{id_}", ended_at=ended_at)
        store.studies.keep(study, [StoredTrial(number=n, data=long) for n in range(20)])
    assert store.trim(1, 10) == ("studies", 1)
    assert store.studies.trials(5) == [] and store.studies.find("s5") is None, "the one that ended first"
    while store.trim(1, 10) is not None:
        pass
    assert [own.name for own in store.studies.unfinished()] == ["s2"]
    assert len(store.studies.trials(2)) == 20
    assert store.studies.ended(10) == []


def test_what_an_event_led_to_counts_as_its_own(store: SqlStore) -> None:
    flood(store, "reports", 50)
    starts = [StartWorker(trainer=1, generation=1, node="n" * 2000)] * 20
    for time in range(10):
        store.record(NodesChanged(time=float(time)), [], None, starts, None, frozenset())
    assert store.trim(1, 1) == ("events", 1)


def test_rows_that_became_larger_count_as_large(store: SqlStore) -> None:
    store.progress([replace(PROGRESS, metrics={})] * 2 * pruning.SAMPLE)
    flood(store, "reports", 2 * pruning.SAMPLE)
    flood(store, "pauses", pruning.SAMPLE)
    assert store.trim(1, 1) == ("reports", 1)


def test_the_file_does_not_outgrow_the_bound(store: SqlStore, path: Path) -> None:
    for _ in range(6):
        flood(store, "reports", 300)
        while store.trim(MB, 100) is not None:
            pass
    store.tidy()
    with store._engine.begin() as connection:
        database.shorten_log(connection, to_nothing=True)
    assert path.stat().st_size < 2.5 * MB, "freed pages are used again"


def test_events_with_very_many_actions_go_one_at_a_time(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "ACTIONS_AT_ONCE", 10)
    starts = [StartWorker(trainer=1, generation=1, node=f"n{i}") for i in range(8)]
    for time in range(4):
        store.record(NodesChanged(time=float(time)), [], None, starts, None, frozenset())
    store.record(NodesChanged(time=4.0), [], None, starts * 3, None, frozenset())
    assert [store.prune(100.0, 100) for _ in range(6)] == [1, 1, 1, 1, 1, 0]


def test_the_log_is_brought_into_the_database_when_there_is_time(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood(store, "reports", 100)
    monkeypatch.setattr("bftrainer.store.sql.TIDY_LOG_BYTES", 1000)
    before = database.log_bytes(path)
    store.tidy()
    flood(store, "reports", 100)
    assert database.log_bytes(path) < 1.5 * before, "the log's space is used again"


def test_a_log_that_somebody_reads_for_ever_has_a_bound(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrainer.store.sql.MOST_LOG_BYTES", 200_000)
    reader = sqlite3.connect(path, isolation_level=None)
    store.put("key", "value")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM memory").fetchall()
    with pytest.raises(StoreError, match="another process has been reading the database for long"):
        flood(store, "reports", 200)
    assert database.log_bytes(path) < 400_000
    assert store.get("key") == "value"
    reader.execute("COMMIT")
    store.put("key", "it goes on")
    reader.close()
