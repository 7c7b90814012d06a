"""`ports.Store` on SQLite (WAL)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os.path import samestat
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
    OperationalError,
    ProgrammingError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from bftrainer.errors import NameTakenError, StoreError, UnstorableError
from bftrainer.model.actions import Action, Ended
from bftrainer.model.events import Event
from bftrainer.model.problem import Plan
from bftrainer.model.reports import Pause, Progress, Row, StoredTrainer, TrainerSummary
from bftrainer.model.trainer import Trainer, TrainerSpec, TrainerStatus
from bftrainer.store import queries, rows
from bftrainer.store import tables as t
from bftrainer.store.damage import DamagedError
from bftrainer.store.database import (
    MOST_LOG_BYTES,
    TIDY_LOG_BYTES,
    cause,
    log_bytes,
    open_database,
    place_of,
    shorten_log,
)
from bftrainer.store.pruning import prune, trim

STEPS = 20_000
"""So many instructions of SQLite's machine run between two looks at the clock: a few milliseconds."""
UNSTORABLE = (ProgrammingError, IntegrityError, DataError, InterfaceError, UnicodeEncodeError, OverflowError)
"""What is raised for a value that SQLite cannot bind, or that is too large for it."""


class SqlStore:
    """The store in one SQLite file. Safe to use from several threads; one transaction per method."""

    def __init__(self, path: Path, *, query_s: float | None = None) -> None:
        """Open, create or upgrade the database. What users ask of it takes `query_s` at most.

        Raises:
            StoreError: not a database of bftrainer, one of a newer version, or not writable.
        """
        self._path = path = place_of(path)  # SQLite keeps the log beside the file itself
        self._query_s = query_s
        self._engine = open_database(path)
        self._file = path.stat()

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
                raise NameTakenError(
                    f"an unfinished trainer is called {spec.name!r}; choose another name, or "
                    f"end that one first: bftrainer cancel {spec.name}"
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
            for report in reports:
                values = dataclasses.asdict(report)
                own = {key: values[key] for key in ("step", "samples", "epoch", "rate", "metrics")}
                c.execute(t.trainers.update().where(t.trainers.c.id == report.trainer).values(own))
                if rows is None or report.trainer in rows:
                    del values["epoch"]
                    c.execute(t.reports.insert().values(values))

    def pause(self, *pauses: Pause) -> None:
        """See `ports.Store.pause`."""
        if pauses:
            with self._writing() as c:
                c.execute(t.pauses.insert(), [dataclasses.asdict(pause) for pause in pauses])

    def put(self, key: str, value: str) -> None:
        """See `ports.Store.put`."""
        with self._writing() as c:
            c.execute(t.memory.delete().where(t.memory.c.key == key))
            c.execute(t.memory.insert().values(key=key, value=value))

    def prune(self, before: float, limit: int) -> int:
        """See `ports.Store.prune`."""
        with self._writing() as c:
            return prune(c, before, limit)

    def trim(self, max_bytes: int, limit: int) -> tuple[str, int] | None:
        """See `ports.Store.trim`."""
        with self._writing() as c:
            return trim(c, max_bytes, limit)

    def tidy(self) -> None:
        """See `ports.Store.tidy`."""
        if log_bytes(self._path) > TIDY_LOG_BYTES:
            with self._transaction() as c:
                shorten_log(c)

    # reading

    def trainers(self) -> list[StoredTrainer]:
        """See `ports.Store.trainers`."""
        return self._trainers(sa.true())

    def unfinished(self, damaged: Callable[[int, str], None] | None = None) -> list[StoredTrainer]:
        """See `ports.Store.unfinished`."""
        return self._trainers(t.trainers.c.ended_at.is_(None), damaged)

    def trainer(self, id_: int) -> StoredTrainer | None:
        """See `ports.Store.trainer`."""
        return next(iter(self._trainers(t.trainers.c.id == id_)), None)

    def latest_named(self, name: str) -> Mapping[str, int]:
        """See `ports.Store.latest_named`."""
        latest = sa.func.max(t.trainers.c.id).label("latest")
        query = sa.select(t.trainers.c.user, latest).where(t.trainers.c.name == name)
        with self._asked() as c:
            found = c.execute(query.group_by(t.trainers.c.user))
            return {row.user: row.latest for row in found}

    def unfinished_summaries(self, user: str | None = None) -> list[TrainerSummary]:
        """See `ports.Store.unfinished_summaries`."""
        with self._transaction() as c:
            return queries.unfinished_summaries(c, user)

    def ended_summaries(self, limit: int, skip: int = 0, user: str | None = None) -> list[TrainerSummary]:
        """See `ports.Store.ended_summaries`."""
        with self._asked() as c:
            return queries.ended_summaries(c, limit, skip, user)

    def count_ended(self, user: str | None = None) -> Mapping[TrainerStatus, int]:
        """See `ports.Store.count_ended`."""
        with self._transaction() as c:
            return queries.count_ended(c, user)

    def get(self, key: str) -> str | None:
        """See `ports.Store.get`."""
        with self._transaction() as c:
            value = c.execute(sa.select(t.memory.c.value).where(t.memory.c.key == key)).scalar()
            return None if value is None else str(value)

    def count_ended_by_user(self) -> Mapping[str, Mapping[TrainerStatus, int]]:
        """See `ports.Store.count_ended_by_user`."""
        with self._transaction() as c:
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
        with self._asked() as c:
            return queries.last_rows(c, what, limit, trainer, user, before)

    @contextmanager
    def _asked(self) -> Iterator[sa.Connection]:
        """A transaction for what a user asks: a query that takes longer than `query_s` is ended."""
        with self._transaction() as c:
            if self._query_s is None:
                yield c
                return
            raw: Any = c.connection.dbapi_connection
            deadline = monotonic() + self._query_s
            raw.set_progress_handler(lambda: monotonic() > deadline, STEPS)
            try:
                yield c
            except OperationalError as error:
                if monotonic() <= deadline:
                    raise
                said = f"the query took longer than {self._query_s:g} s; ask for less"
                raise StoreError(f"{self._path}: {said}") from error
            finally:
                raw.set_progress_handler(None, 0)

    def _trainers(
        self, which: sa.ColumnElement[bool], damaged: Callable[[int, str], None] | None = None
    ) -> list[StoredTrainer]:
        query = sa.select(t.trainers).where(which).order_by(t.trainers.c.id)
        found = []
        with self._transaction() as c:
            for row in c.execute(query):
                try:
                    found.append(rows.to_trainer(row))
                except DamagedError as error:
                    if damaged is None:
                        raise StoreError(f"{self._path}: {error}") from error
                    damaged(row.id, str(error))
        return found

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        self._check_file()
        if log_bytes(self._path) > MOST_LOG_BYTES:
            with self._transaction() as c:
                shorten_log(c, to_nothing=True)
            if (size := log_bytes(self._path)) > MOST_LOG_BYTES:
                raise StoreError(
                    f"{self._path}-wal has {size / 1e6:.0f} MB and cannot be emptied: another process has "
                    f"been reading the database for long; find it with fuser {self._path}, and end it"
                )
        with self._transaction() as c:
            yield c

    def _check_file(self) -> None:
        try:
            same = samestat(self._path.stat(), self._file)
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}; put it back, or restart the daemon") from error
        if not same:
            raise StoreError(
                f"{self._path} is another file than the one that was opened; put that one back, or restart "
                "the daemon"
            )

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except UNSTORABLE as error:
            raise UnstorableError(f"{self._path}: a value cannot be stored: {cause(error)}") from error
        except (DatabaseError, PoolTimeoutError) as error:
            raise StoreError(f"{self._path}: {cause(error)}") from error
        except (StatementError, ValueError, TypeError) as error:  # SQLite was not reached
            raise UnstorableError(f"{self._path}: a value cannot be stored: {cause(error)}") from error


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
