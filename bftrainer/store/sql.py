"""`ports.Store` on SQLite (WAL)."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    ProgrammingError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from bftrainer.errors import DamagedError, NameTakenError, StoreError, UnstorableError
from bftrainer.messages.commands.daemon import NAME_TAKEN
from bftrainer.messages.commands.running import DATABASE, UNSTORABLE_VALUE
from bftrainer.model.actions import Action, Ended
from bftrainer.model.events import Event
from bftrainer.model.main_jobs import MainStart
from bftrainer.model.problem import Plan
from bftrainer.model.reports import Pause, Progress, Row, StoredTrainer, TrainerSummary
from bftrainer.model.trainer import Trainer, TrainerSpec, TrainerStatus
from bftrainer.store import queries, rows
from bftrainer.store import tables as t
from bftrainer.store.database import (
    MOST_LOG_BYTES,
    TIDY_LOG_BYTES,
    cause,
    check_log,
    check_same,
    log_bytes,
    open_database,
    place_of,
    shorten_log,
)
from bftrainer.store.pruning import prune, trim
from bftrainer.store.rows import TRAINER, of_progress, of_report
from bftrainer.store.studies import StudyTables

STEPS = 20_000
"""Instructions of SQLite's machine between two looks at the clock: a few milliseconds."""
ENDS = "nothing is read any more: the daemon ends"
OWN_S = 300.0
"""Seconds that the daemon's own reads and writes take at most: else the database is damaged."""
TIDY_S = 60.0
"""Seconds that deleting a few old rows takes at most: meanwhile nothing else is written."""
UNSTORABLE = (ProgrammingError, IntegrityError, DataError, InterfaceError, UnicodeEncodeError, OverflowError)
"""Errors for a value that SQLite cannot bind, or that is too large for it."""
LATEST = t.trainers.update().where(t.trainers.c.id == sa.bindparam(TRAINER))
"""Note what a trainer last reported."""


class SqlStore:
    """The store in one SQLite file. Safe to use from several threads; one transaction per method."""

    def __init__(self, path: Path, *, query_s: float | None = None) -> None:
        """Open, create or upgrade the database. What users ask of it takes `query_s` at most; without it, as
        long as it takes.

        Raises:
            StoreError: not a database of bftrainer, one of a newer version, or not writable.
        """
        self._path = path = place_of(path)  # SQLite keeps the log beside the file itself
        self._query_s = inf if query_s is None else query_s
        self._ends = threading.Event()
        self._engine = open_database(path)
        self._file = path.stat()
        self.studies = StudyTables(self._writing, self._reading)

    def interrupt(self) -> None:
        """See `ports.Store.interrupt`."""
        self._ends.set()

    def close(self) -> None:
        """Close all connections; what was written stays."""
        self._engine.dispose()

    # writing

    def submit(self, spec: TrainerSpec, time: float) -> int:
        """See `ports.Store.submit`."""
        with self._writing() as c:
            try:
                return _insert(c, t.trainers, rows.of_new_trainer(spec, time))
            except IntegrityError as error:
                ended = t.trainers.c.ended_at
                own = (t.trainers.c.name == spec.name, t.trainers.c.user == spec.user, ended.is_(None))
                other = c.execute(sa.select(sa.func.max(t.trainers.c.id)).where(*own)).scalar_one()
                raise NameTakenError(
                    NAME_TAKEN.say(kind="trainer", name=spec.name, command="cancel", other=other or spec.name)
                ) from error

    def record(
        self,
        event: Event,
        trainers: Sequence[Trainer],
        plan: Plan | None,
        actions: Sequence[Action],
        ended: Ended | None,
        pool: frozenset[str],
    ) -> list[int]:
        """See `ports.Store.record`."""
        with self._writing() as c:
            id_ = _insert(c, t.events, rows.of_event(event, len(pool)))
            if plan is not None:
                c.execute(t.plans.insert().values(rows.of_plan(plan, id_)))
            _update(c, trainers)
            if ended is not None:
                _end(c, ended, event.time)
            return [_insert(c, t.actions, rows.of_action(action, id_)) for action in actions]

    def performed(self, actions: Sequence[int], time: float) -> None:
        """See `ports.Store.performed`."""
        if actions:
            done = t.actions.update().values(performed_at=time)
            with self._writing() as c:
                for some in queries.chunks(actions):
                    c.execute(done.where(t.actions.c.id.in_(some)))

    def catch_up(self, trainers: Sequence[Trainer], ended: Sequence[tuple[Ended, float]]) -> None:
        """See `ports.Store.catch_up`."""
        with self._writing() as c:
            _update(c, trainers)
            for end, time in ended:
                _end(c, end, time)

    def progress(self, reports: Sequence[Progress], rows: Collection[int] | None = None) -> None:
        """See `ports.Store.progress`."""
        with self._writing() as c:
            if reports:
                c.execute(LATEST, [of_progress(report) for report in reports])
            kept = [of_report(report) for report in reports if rows is None or report.trainer in rows]
            if kept:
                c.execute(t.reports.insert(), kept)

    def pause(self, *pauses: Pause) -> None:
        """See `ports.Store.pause`."""
        if pauses:
            with self._writing() as c:
                c.execute(t.pauses.insert(), [dataclasses.asdict(pause) for pause in pauses])

    def main_started(self, starts: Sequence[MainStart], most: int) -> None:
        """See `ports.Store.main_started`."""
        with self._writing() as c:
            queries.add_main_starts(c, starts, most)

    def put(self, key: str, value: str) -> None:
        """See `ports.Store.put`."""
        with self._writing() as c:
            c.execute(t.memory.delete().where(t.memory.c.key == key))
            c.execute(t.memory.insert().values(key=key, value=value))

    def prune(self, before: float, limit: int) -> int:
        """See `ports.Store.prune`."""
        with self._writing(TIDY_S, self._ends.is_set) as c:
            return prune(c, before, limit)

    def trim(self, max_bytes: int, limit: int) -> tuple[str, int] | None:
        """See `ports.Store.trim`."""
        with self._writing(TIDY_S, self._ends.is_set) as c:
            return trim(c, max_bytes, limit)

    def tidy(self) -> None:
        """See `ports.Store.tidy`."""
        if log_bytes(self._path) > TIDY_LOG_BYTES:
            with self._transaction() as c:
                shorten_log(c)

    # reading

    def main_starts(self, since: float, limit: int) -> list[MainStart]:
        """See `ports.Store.main_starts`."""
        with self._reading(self._query_s) as c:
            return queries.main_starts_since(c, since, limit)

    def trainers(self) -> list[StoredTrainer]:
        """See `ports.Store.trainers`."""
        return self._trainers(sa.true(), self._query_s)

    def unfinished(self, damaged: Callable[[int, str], None] | None = None) -> list[StoredTrainer]:
        """See `ports.Store.unfinished`."""
        return self._trainers(t.trainers.c.ended_at.is_(None), damaged=damaged)

    def trainer(self, id_: int) -> StoredTrainer | None:
        """See `ports.Store.trainer`."""
        return next(iter(self._trainers(t.trainers.c.id == id_, self._query_s)), None)

    def latest_named(self, name: str) -> Mapping[str, int]:
        """See `ports.Store.latest_named`."""
        with self._reading(self._query_s) as c:
            return queries.latest_named(c, name)

    def unfinished_summaries(self, user: str | None = None) -> list[TrainerSummary]:
        """See `ports.Store.unfinished_summaries`."""
        with self._reading() as c:
            return queries.unfinished_summaries(c, user)

    def ended_summaries(self, limit: int, skip: int = 0, user: str | None = None) -> list[TrainerSummary]:
        """See `ports.Store.ended_summaries`."""
        with self._reading(self._query_s) as c:
            return queries.ended_summaries(c, limit, skip, user)

    def count_ended(self, user: str | None = None) -> Mapping[TrainerStatus, int]:
        """See `ports.Store.count_ended`."""
        with self._reading() as c:
            return queries.count_ended(c, user)

    def get(self, key: str) -> str | None:
        """See `ports.Store.get`."""
        with self._reading() as c:
            value = c.execute(sa.select(t.memory.c.value).where(t.memory.c.key == key)).scalar()
            return None if value is None else str(value)

    def count_ended_by_user(self) -> Mapping[str, Mapping[TrainerStatus, int]]:
        """See `ports.Store.count_ended_by_user`."""
        with self._reading() as c:
            return queries.count_ended_by_user(c)

    def rows(
        self,
        what: str,
        limit: int | None,
        trainer: int | None = None,
        user: str | None = None,
        before: int | None = None,
    ) -> list[Row]:
        """See `ports.Store.rows`."""
        with self._reading(self._query_s) as c:
            return queries.last_rows(c, what, limit, trainer, user, before)

    @contextmanager
    def _reading(self, limit_s: float | None = None) -> Iterator[sa.Connection]:
        """A transaction that reads, until the daemon ends."""
        if self._ends.is_set():
            raise StoreError(f"{self._path}: {ENDS}")
        try:
            with self._transaction(limit_s, self._ends.is_set) as c:
                yield c
        except StoreError as error:
            if self._ends.is_set():
                raise StoreError(f"{self._path}: {ENDS}") from error
            raise

    def _trainers(
        self,
        which: sa.ColumnElement[bool],
        limit_s: float | None = None,
        damaged: Callable[[int, str], None] | None = None,
    ) -> list[StoredTrainer]:
        query = sa.select(t.trainers).where(which).order_by(t.trainers.c.id)
        found = []
        with self._reading(limit_s) as c:
            for row in c.execute(query):
                try:
                    found.append(rows.to_trainer(row))
                except DamagedError as error:
                    if damaged is None:
                        raise DamagedError(f"{self._path}: {error}") from error
                    damaged(row.id, str(error))
        return found

    @contextmanager
    def _writing(
        self, limit_s: float | None = None, ends: Callable[[], bool] = lambda: False
    ) -> Iterator[sa.Connection]:
        check_same(self._path, self._file)
        if log_bytes(self._path) > MOST_LOG_BYTES:
            with self._transaction() as c:
                shorten_log(c, to_nothing=True)
            check_log(self._path, MOST_LOG_BYTES)
        with self._transaction(limit_s, ends) as c:
            yield c

    @contextmanager
    def _transaction(
        self, limit_s: float | None = None, ends: Callable[[], bool] = lambda: False
    ) -> Iterator[sa.Connection]:
        """Run statements that are ended after `limit_s` together (`OWN_S`), or when `ends` says so."""
        limit_s = OWN_S if limit_s is None else limit_s
        deadline = monotonic() + limit_s
        try:
            with self._engine.begin() as connection:
                raw: Any = connection.connection.dbapi_connection
                raw.set_progress_handler(lambda: ends() or monotonic() > deadline, STEPS)
                try:
                    yield connection
                finally:
                    raw.set_progress_handler(None, 0)
        except UNSTORABLE as error:
            raise UnstorableError(f"{self._path}: {UNSTORABLE_VALUE.say(why=cause(error))}") from error
        except (DatabaseError, PoolTimeoutError, UnicodeDecodeError) as error:
            if "interrupted" in str(error) and monotonic() > deadline:
                own = limit_s in (OWN_S, TIDY_S)
                more = "it is damaged: restore it from a backup" if own else "ask for less"
                said = f"the query took longer than {limit_s:g} s; {more}"
            else:
                said = cause(error)
            raise StoreError(DATABASE.ends(f"{self._path}: {said}")) from error
        except (StatementError, ValueError, TypeError) as error:  # SQLite was not reached
            raise UnstorableError(f"{self._path}: {UNSTORABLE_VALUE.say(why=cause(error))}") from error


def _insert(c: sa.Connection, table: sa.Table, values: rows.Columns) -> int:
    """Add a row and return its id."""
    result = c.execute(table.insert().values(values))
    return int(result.inserted_primary_key[0])  # type: ignore[index]


def _update(c: sa.Connection, trainers: Sequence[Trainer]) -> None:
    """Note trainers as they are now."""
    for trainer in trainers:
        values = {"status": trainer.status.value, "engine": rows.of_engine(trainer)}
        c.execute(t.trainers.update().where(t.trainers.c.id == trainer.id).values(values))


def _end(c: sa.Connection, ended: Ended, time: float) -> None:
    """Note a trainer's end, and count it."""
    own = (t.trainers.c.id == ended.trainer, t.trainers.c.ended_at.is_(None))
    values = {"status": ended.status.value, "reason": ended.reason, "ended_at": time, "rate": None}
    user = c.execute(t.trainers.update().where(*own).values(values).returning(t.trainers.c.user)).scalar()
    if user is not None:
        row = insert(t.ended).values(user=user, status=ended.status.value, count=1)
        c.execute(row.on_conflict_do_update(set_={"count": t.ended.c.count + 1}))
