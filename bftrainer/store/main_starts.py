"""The starts of main jobs in the store: what they waited, and whether nodes of ours were in their way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sa

from bftrainer.model.main_jobs import Affected, MainStart
from bftrainer.store import tables as t

COLUMNS = tuple(column.name for column in t.main_starts.c if column.name != "id")
KNOWN = frozenset(Affected)


def add(c: sa.Connection, starts: Sequence[MainStart], most: int) -> None:
    """See `ports.Store.main_started`. Ids follow each other, so that the rows to delete need no counting."""
    rows = [{name: values[name] for name in COLUMNS} for values in map(asdict, starts)]
    if not rows:
        return
    c.execute(t.main_starts.insert(), rows)
    last = c.execute(sa.select(sa.func.max(t.main_starts.c.id))).scalar() or 0
    c.execute(t.main_starts.delete().where(t.main_starts.c.id <= last - most))


def since(c: sa.Connection, time: float, limit: int) -> list[MainStart]:
    """See `ports.Store.main_starts`. A row that cannot be read is left out: it is one of many."""
    own = t.main_starts.c
    newest = sa.select(*(own[name] for name in COLUMNS)).order_by(own.id.desc()).limit(limit).subquery()
    query = sa.select(newest).where(newest.c.time >= time)
    found = []
    for row in c.execute(query):
        values = dict(row._mapping)
        if values["affected"] in KNOWN and isinstance(values["wait_s"], float):
            found.append(MainStart(**values | {"affected": Affected(values["affected"])}))
    return found[::-1]
