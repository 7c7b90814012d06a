"""Deletes what is older than a site wants to keep, in small steps."""

from __future__ import annotations

import sqlalchemy as sa

from bftrainer.store import tables as t


def prune(c: sa.Connection, before: float, limit: int) -> int:
    """See `ports.Store.prune`. Ids are in order of recording: the oldest rows have the lowest ones."""
    deleted = 0
    for table in (t.events, t.reports, t.pauses):
        last = _last_older(c, table, before, limit)
        if last is None:
            continue
        if table is t.events:  # with all that refers to them
            c.execute(t.actions.delete().where(t.actions.c.event <= last))
            c.execute(t.plans.delete().where(t.plans.c.event <= last))
        deleted += c.execute(table.delete().where(table.c.id <= last)).rowcount
    return deleted


def _last_older(c: sa.Connection, table: sa.Table, before: float, limit: int) -> int | None:
    """The highest id of a row of a time earlier than `before` among the first `limit`.

    Those few are looked at without an index on the time. A row that a wrong clock dated later than its
    neighbours goes with them.
    """
    first = sa.select(table.c.id, table.c.time).order_by(table.c.id).limit(limit).subquery()
    return c.execute(sa.select(sa.func.max(first.c.id)).where(first.c.time < before)).scalar()
