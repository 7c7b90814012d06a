"""The tables of studies and their trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import Insert, insert

from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.store import tables as t
from bftrainer.store.damage import number_of, text_of

Transaction = Callable[[], AbstractContextManager[sa.Connection]]


def _upsert(table: sa.Table) -> Insert:
    """Add a row, or put it in place of the one with its key. Made once: to make it takes longer than to
    carry it out."""
    row = insert(table)
    return row.on_conflict_do_update(
        set_={column.name: row.excluded[column.name] for column in table.columns}
    )


STUDY, TRIALS = _upsert(t.studies), _upsert(t.trials)


class StudyTables:
    """Implements `ports.StudyStore` on a database: `writing` and `reading` begin its transactions."""

    def __init__(self, writing: Transaction, reading: Transaction) -> None:
        self._writing, self._reading = writing, reading

    def keep(self, study: StoredStudy, trials: Sequence[StoredTrial]) -> None:
        """See `ports.StudyStore.keep`."""
        values = asdict(study)
        with self._writing() as c:
            c.execute(STUDY, values)
            if trials:
                own = [{"study": study.id, "number": t.number, "data": dict(t.data)} for t in trials]
                c.execute(TRIALS, own)

    def last_id(self) -> int:
        """See `ports.StudyStore.last_id`."""
        with self._reading() as c:
            return int(c.execute(sa.select(sa.func.max(t.studies.c.id))).scalar() or 0)

    def unfinished(self) -> list[StoredStudy]:
        """See `ports.StudyStore.unfinished`."""
        return self._studies(t.studies.c.ended_at.is_(None), None)

    def ended(self, limit: int, user: str | None = None) -> list[StoredStudy]:
        """See `ports.StudyStore.ended`."""
        which = t.studies.c.ended_at.is_not(None)
        return self._studies(which if user is None else which & (t.studies.c.user == user), limit)

    def find(self, name: str, user: str | None = None) -> StoredStudy | None:
        """See `ports.StudyStore.find`."""
        own = t.studies.c.name == name
        if name.isascii() and name.isdecimal() and len(name) < 19:
            own = t.studies.c.id == int(name)
        return next(iter(self._studies(own if user is None else own & (t.studies.c.user == user), 1)), None)

    def trials(self, study: int) -> list[StoredTrial]:
        """See `ports.StudyStore.trials`."""
        own = t.trials.c
        query = sa.select(own.number, own.data).where(own.study == study).order_by(own.number)
        with self._reading() as c:
            return [StoredTrial(number=row.number, data=row.data) for row in c.execute(query)]

    def _studies(self, which: sa.ColumnElement[bool], limit: int | None) -> list[StoredStudy]:
        """The studies that ended last first, or those that came last."""
        order = (t.studies.c.ended_at.desc(), t.studies.c.id.desc())
        query = sa.select(t.studies).where(which).order_by(*order).limit(limit)
        with self._reading() as c:
            return [_study(row) for row in c.execute(query)]


def _study(row: Any) -> StoredStudy:
    return StoredStudy(
        id=row.id,
        user=text_of(row.user),
        name=text_of(row.name),
        text=text_of(row.text),
        file=text_of(row.file),
        base=text_of(row.base),
        status=text_of(row.status),
        reason=text_of(row.reason),
        submitted_at=number_of(row.submitted_at),
        ended_at=None if row.ended_at is None else number_of(row.ended_at),
        brief=row.brief,
    )
