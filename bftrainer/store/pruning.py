"""Deletes what is older than a site wants to keep, and what is more than it has room for, in small steps."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from bftrainer.store import tables as t

ACTIONS_AT_ONCE = 2000
"""Actions, about, with whose events a deletion ends: an event may have one for each node."""
SAMPLE = 50
"""Oldest and latest rows of a table, each, that stand for all of them."""
DRAWN = 200
"""Rows that say who has most of a table: whole tables would take seconds."""
OVERHEAD = 40
"""Bytes of a row beside its values, with its part of the indexes: about."""


def prune(c: sa.Connection, before: float, limit: int) -> int:
    """See `ports.Store.prune`. Ids are in order of recording: the oldest rows have the lowest ones."""
    deleted = 0
    for table in (t.events, t.reports, t.pauses, t.main_starts):
        last = _last_older(c, table, before, limit)
        if last is not None:
            deleted += _delete_events(c, last) if table is t.events else _delete(c, table, last)
    return deleted


def trim(c: sa.Connection, max_bytes: int, limit: int) -> tuple[str, int] | None:
    """See `ports.Store.trim`."""
    if used(c) <= max_bytes:
        return None
    sizes = {kind: size(c) for kind, (size, _) in KINDS.items()}
    for kind in sorted(sizes, key=lambda kind: -sizes[kind]):
        if deleted := KINDS[kind][1](c, limit):
            return kind, deleted
    return None


def used(c: sa.Connection) -> int:
    """The bytes of the database that hold something. Freed pages are used again: the file grows only when
    this does."""
    pages, free, size = (
        int(c.exec_driver_sql(f"PRAGMA {name}").scalar() or 0)
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _last_older(c: sa.Connection, table: sa.Table, before: float, limit: int) -> int | None:
    """The highest id of a row of a time earlier than `before` among the first `limit`.

    Those few are looked at without an index on the time. A row that a wrong clock dated later than its
    neighbours goes with them.
    """
    first = sa.select(table.c.id, table.c.time).order_by(table.c.id).limit(limit).subquery()
    return c.execute(sa.select(sa.func.max(first.c.id)).where(first.c.time < before)).scalar()


def _delete(c: sa.Connection, table: sa.Table, last: int) -> int:
    """Delete the rows up to an id; returns how many they were."""
    return c.execute(table.delete().where(table.c.id <= last)).rowcount


def _delete_events(c: sa.Connection, last: int) -> int:
    """Delete the events up to an id, with all that refers to them; fewer, but at least one, if that is a lot.

    Returns how many events they were.
    """
    event = t.actions.c.event
    too_many = c.execute(sa.select(event).order_by(event).limit(1).offset(ACTIONS_AT_ONCE)).scalar()
    if too_many is not None:
        first = c.execute(sa.select(sa.func.min(t.events.c.id))).scalar() or 0
        last = max(first, min(last, too_many - 1))
    c.execute(t.actions.delete().where(event <= last))
    c.execute(t.plans.delete().where(t.plans.c.event <= last))
    return _delete(c, t.events, last)


# what takes the most room


def _bytes(c: sa.Connection, table: sa.Table) -> float:
    """About how many bytes the rows of a table take. They are deleted from the oldest on: their keys follow
    each other."""
    key = next(iter(table.primary_key))
    first, last = c.execute(sa.select(sa.func.min(key), sa.func.max(key))).one()
    if first is None:
        return 0.0
    every = sa.select(table)
    samples = (every.order_by(key).limit(SAMPLE), every.order_by(key.desc()).limit(SAMPLE))
    return float(last - first + 1) * max(_mean(c, sample) for sample in samples)


def _mean(c: sa.Connection, rows: sa.Select[Any]) -> float:
    """The mean size of some rows, in bytes."""
    return float(c.execute(sa.select(sa.func.avg(_size_of(rows.subquery())))).scalar() or 0.0)


def _events_bytes(c: sa.Connection) -> float:
    return _bytes(c, t.events) + _bytes(c, t.plans) + _bytes(c, t.actions)


def _trainers_bytes(c: sa.Connection) -> float:
    """About how many bytes the trainers take that have ended."""
    count = c.execute(sa.select(sa.func.sum(t.ended.c.count))).scalar() or 0
    ended = sa.select(t.trainers).where(t.trainers.c.ended_at.is_not(None))
    at = t.trainers.c.ended_at
    samples = (ended.order_by(at).limit(SAMPLE), ended.order_by(at.desc()).limit(SAMPLE))
    return float(count) * max(_mean(c, sample) for sample in samples)


def _trim_events(c: sa.Connection, limit: int) -> int:
    last = _last_older(c, t.events, float("inf"), limit)
    return 0 if last is None else _delete_events(c, last)


def _trim_rows(table: sa.Table) -> Callable[[sa.Connection, int], int]:
    def trim_rows(c: sa.Connection, limit: int) -> int:
        last = _last_older(c, table, float("inf"), limit)
        return 0 if last is None else _delete(c, table, last)

    return trim_rows


# who has the most


def _size_of(table: sa.FromClause) -> sa.ColumnElement[int]:
    return sum((sa.func.coalesce(sa.func.length(own), 0) for own in table.c), sa.literal(OVERHEAD))


def _drawn(c: sa.Connection, table: sa.Table, rows: sa.Select[Any]) -> Counter[Any]:
    """About how many bytes each owner has in a table, by some of its rows: `rows` has owners and sizes.
    Some of the keys that are drawn may be those of rows that were deleted: they count for nothing."""
    key: sa.ColumnElement[int] = sa.literal_column(f"{table.name}.rowid")
    first, last = c.execute(sa.select(sa.func.min(key), sa.func.max(key)).select_from(table)).one()
    found: Counter[Any] = Counter()
    if first is not None:
        every = range(first, last + 1)
        drawn = random.sample(every, min(DRAWN, len(every)))  # not for secrets
        for owner, size in c.execute(rows.where(key.in_(drawn))):
            found[owner] += size * len(every) / len(drawn)
    return found


def _by_trainer(c: sa.Connection, table: sa.Table) -> Counter[int]:
    return _drawn(c, table, sa.select(table.c.trainer, _size_of(table)))


def _trim_of_trainers(table: sa.Table) -> Callable[[sa.Connection, int], int]:
    """Delete the oldest rows of the trainer with the most, of the user with the most: an index has them."""

    def trim_rows(c: sa.Connection, limit: int) -> int:
        found, own = _by_trainer(c, table), t.trainers.c
        rows = c.execute(sa.select(own.id, own.user).where(own.id.in_(found)))
        users = {row.id: row.user for row in rows}
        of_user: Counter[str | None] = Counter()  # None: those of trainers that are gone
        for trainer, size in found.items():
            of_user[users.get(trainer)] += size
        if not found:  # few rows are left between those that were deleted
            return _trim_rows(table)(c, limit)
        user = max(of_user, key=of_user.__getitem__)
        heaviest = max((one for one in found if users.get(one) == user), key=found.__getitem__)
        ids = sa.select(table.c.id).where(table.c.trainer == heaviest).order_by(table.c.id).limit(limit)
        return c.execute(table.delete().where(table.c.id.in_(ids.scalar_subquery()))).rowcount

    return trim_rows


def _of_heaviest(user: sa.Column[str], found: Counter[str]) -> sa.ColumnElement[bool]:
    """Return the condition for rows of the user with the most: one user's flood must cost no other."""
    return user == max(found, key=found.__getitem__) if found else sa.true()


def _trim_trainers(c: sa.Connection, limit: int) -> int:
    """Delete the trainers that ended first, of the user who has the most, and count them no more."""
    own = t.trainers.c
    sizes = sa.select(own.user, _size_of(t.trainers)).where(own.ended_at.is_not(None))
    heaviest = _of_heaviest(own.user, _drawn(c, t.trainers, sizes))
    ended = sa.select(own.id).where(own.ended_at.is_not(None), heaviest)
    oldest = ended.order_by(own.ended_at, own.id).limit(limit)
    gone = c.execute(
        t.trainers.delete().where(own.id.in_(oldest.scalar_subquery())).returning(own.user, own.status)
    ).all()
    for (user, status), count in Counter((row.user, row.status) for row in gone).items():
        same = (t.ended.c.user == user, t.ended.c.status == status)
        c.execute(t.ended.update().where(*same).values(count=t.ended.c.count - count))
        c.execute(t.ended.delete().where(*same, t.ended.c.count <= 0))
    return len(gone)


def _studies_bytes(c: sa.Connection) -> float:
    """About how many bytes the studies take that have ended, with their trials."""
    ended = t.studies.c.ended_at.is_not(None)
    of_ended = sa.select(t.trials).where(t.trials.c.study.in_(sa.select(t.studies.c.id).where(ended)))
    rows = (of_ended, sa.select(t.studies).where(ended))
    return sum(float(_count(c, own)) * _mean(c, own.limit(SAMPLE)) for own in rows)


def _count(c: sa.Connection, rows: sa.Select[Any]) -> int:
    return int(c.execute(sa.select(sa.func.count()).select_from(rows.subquery())).scalar() or 0)


def _trim_studies(c: sa.Connection, limit: int) -> int:
    """Delete the study that ended first, of the user who has the most, with all its trials: half a study
    would be a wrong one."""
    own = t.studies.c
    over, of_study = own.ended_at.is_not(None), t.trials.c.study == own.id
    trials = sa.select(own.user, _size_of(t.trials)).join_from(t.trials, t.studies, of_study).where(over)
    found = _drawn(c, t.studies, sa.select(own.user, _size_of(t.studies)).where(over))
    found += _drawn(c, t.trials, trials)
    oldest = sa.select(own.id).where(over, _of_heaviest(own.user, found)).order_by(own.ended_at, own.id)
    id_ = c.execute(oldest.limit(1)).scalar()
    if id_ is None:
        return 0
    c.execute(t.trials.delete().where(t.trials.c.study == id_))
    return c.execute(t.studies.delete().where(own.id == id_)).rowcount


KINDS: dict[str, tuple[Callable[[sa.Connection], float], Callable[[sa.Connection, int], int]]] = {
    "reports": (lambda c: _by_trainer(c, t.reports).total(), _trim_of_trainers(t.reports)),
    "pauses": (lambda c: _by_trainer(c, t.pauses).total(), _trim_of_trainers(t.pauses)),
    "main_starts": (lambda c: _bytes(c, t.main_starts), _trim_rows(t.main_starts)),
    "events": (_events_bytes, _trim_events),
    "trainers": (_trainers_bytes, _trim_trainers),
    "studies": (_studies_bytes, _trim_studies),
}
"""Kinds of rows that can be deleted early: their size, about, and the deletion of a few of the oldest."""
