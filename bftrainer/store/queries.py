"""Queries: trainers in brief, events with what they led to, and starts of main jobs.

What a query reads is bounded by an index, or by what it returns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from bftrainer.model.events import told_to
from bftrainer.model.main_jobs import Affected, MainStart
from bftrainer.model.reports import Row, TrainerSummary
from bftrainer.model.trainer import TrainerStatus
from bftrainer.nodesets import folded
from bftrainer.store import tables as t
from bftrainer.store.damage import status_of
from bftrainer.store.rows import to_summary

CHUNK = 500
"""Ids named in one query: SQLite bounds how many it takes."""

BRIEF = sa.select(
    *(t.trainers.c[name] for name in ("id", "user", "name", "status", "reason", "submitted_at", "ended_at")),
    *(t.trainers.c[name] for name in ("samples", "step", "epoch", "rate", "metrics", "of", "warned")),
    # SQLite reads this one number much faster than Python decodes the whole spec
    sa.case(
        (sa.func.json_valid(t.trainers.c.spec), sa.func.json_extract(t.trainers.c.spec, "$.samples"))
    ).label("work"),
)
COUNT = sa.cast(t.ended.c.count, sa.Integer)
"""A number even where the column holds none: 0 then."""
Item = TypeVar("Item")
MAIN_STARTS = tuple(column.name for column in t.main_starts.c if column.name != "id")
AFFECTED = frozenset(Affected)
MOST_WHERE = 1000
"""Characters of a list of nodes that are kept: those of most jobs are a few ranges."""
_TABLES = {"events": t.events, "pauses": t.pauses, "reports": t.reports}


def unfinished_summaries(c: sa.Connection, user: str | None) -> list[TrainerSummary]:
    """See `ports.Store.unfinished_summaries`."""
    query = _of_user(BRIEF.where(t.trainers.c.ended_at.is_(None)), user).order_by(t.trainers.c.id)
    return [to_summary(row) for row in c.execute(query)]


def latest_named(c: sa.Connection, name: str) -> dict[str, int]:
    """See `ports.Store.latest_named`."""
    latest = sa.func.max(t.trainers.c.id).label("latest")
    query = sa.select(t.trainers.c.user, latest).where(t.trainers.c.name == name)
    return {row.user: row.latest for row in c.execute(query.group_by(t.trainers.c.user))}


def ended_summaries(c: sa.Connection, limit: int, skip: int, user: str | None) -> list[TrainerSummary]:
    """See `ports.Store.ended_summaries`."""
    latest = (t.trainers.c.ended_at.desc(), t.trainers.c.id.desc())
    ids = _of_user(sa.select(t.trainers.c.id).where(t.trainers.c.ended_at.is_not(None)), user)
    some = ids.order_by(*latest).limit(limit).offset(skip)  # those skipped are skipped in the index
    return [to_summary(row) for row in c.execute(BRIEF.where(t.trainers.c.id.in_(some)).order_by(*latest))]


def count_ended(c: sa.Connection, user: str | None) -> dict[TrainerStatus, int]:
    """See `ports.Store.count_ended`."""
    query = sa.select(t.ended.c.status, COUNT)
    return _counts(c.execute(query if user is None else query.where(t.ended.c.user == user)))


def count_ended_by_user(c: sa.Connection) -> dict[str, dict[TrainerStatus, int]]:
    """See `ports.Store.count_ended_by_user`."""
    by_user: dict[str, list[tuple[str, int]]] = {}
    for user, status, count in c.execute(sa.select(t.ended.c.user, t.ended.c.status, COUNT)):
        by_user.setdefault(user, []).append((status, count))
    return {user: _counts(rows) for user, rows in by_user.items()}


def _counts(rows: Iterable[Any]) -> dict[TrainerStatus, int]:
    """The sum of each status; one that is unknown counts as failed."""
    found: dict[TrainerStatus, int] = {}
    for status, count in rows:
        known = status_of(status)
        found[known] = found.get(known, 0) + count
    return found


def last_rows(
    c: sa.Connection,
    what: str,
    limit: int | None,
    trainer: int | None,
    user: str | None,
    before: int | None,
) -> list[Row]:
    """See `ports.Store.rows`."""
    table = _TABLES[what]
    own = sa.select(t.trainers.c.id).where(t.trainers.c.user == user)

    def last(*which: sa.ColumnElement[bool]) -> sa.Select[Any]:
        """The ids of the last rows of a kind: read from the index of trainers alone."""
        earlier = () if before is None else (table.c.id < before,)
        return sa.select(table.c.id).where(*which, *earlier).order_by(table.c.id.desc()).limit(limit)

    if trainer is not None:
        mine = () if user is None else (table.c.trainer.in_(own),)
        ids = last(table.c.trainer == trainer, *mine)
    elif user is None:
        ids = last()
    else:  # not one row of others is read, however many they have
        parts = [last(table.c.trainer.in_(own))]
        if table.c.trainer.nullable:
            parts.append(last(table.c.trainer.is_(None)))
        ids = sa.union_all(*(sa.select(part.subquery().c.id) for part in parts))  # type: ignore[assignment]
    query = sa.select(table).where(table.c.id.in_(ids)).order_by(table.c.id.desc()).limit(limit)
    found = [dict(row._mapping) for row in c.execute(query)][::-1]
    if what == "events":
        if user is not None:
            found = [row | {"data": told_to(user, row["kind"], row["data"])} for row in found]
        for some in chunks(found):
            _add_decisions(c, some, user)
    return found


def _of_user(query: sa.Select[Any], user: str | None) -> sa.Select[Any]:
    return query if user is None else query.where(t.trainers.c.user == user)


def _add_decisions(c: sa.Connection, events: Sequence[Row], user: str | None) -> None:
    """Add to events their plans and actions, and of those what is about trainers of `user` (None: all)."""
    ids = [event["id"] for event in events]
    plans = [dict(row._mapping) for row in c.execute(sa.select(t.plans).where(t.plans.c.event.in_(ids)))]
    query = sa.select(t.actions).where(t.actions.c.event.in_(ids)).order_by(t.actions.c.id)
    actions = [dict(row._mapping) for row in c.execute(query)]
    if user is not None:
        mentioned = {int(k) for plan in plans for k in plan["allocation"]} | {a["trainer"] for a in actions}
        own = set(_owned(c, mentioned, user))
        actions = [action for action in actions if action["trainer"] in own]
        for plan in plans:
            plan["allocation"] = {k: v for k, v in plan["allocation"].items() if int(k) in own}
    by_event = {plan["event"]: plan for plan in plans}
    for event in events:
        event["plan"] = by_event.get(event["id"])
        event["actions"] = []
    of = {event["id"]: event["actions"] for event in events}
    for action in actions:
        of[action["event"]].append(action)


def _owned(c: sa.Connection, trainers: Collection[int], user: str) -> Iterator[int]:
    """The trainers among these that are of `user`."""
    for some in chunks(list(trainers)):
        found = c.execute(sa.select(t.trainers.c.id, t.trainers.c.user).where(t.trainers.c.id.in_(some)))
        yield from (row.id for row in found if row.user == user)


def chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The items, in parts as large as one query may name."""
    return (items[begin : begin + CHUNK] for begin in range(0, len(items), CHUNK))


def add_main_starts(c: sa.Connection, starts: Sequence[MainStart], most: int) -> None:
    """See `ports.Store.main_started`. Ids follow each other, so that the rows to delete need no counting."""
    rows = [
        {name: getattr(start, name) for name in MAIN_STARTS} | {"where": _where(start)} for start in starts
    ]
    if not rows:
        return
    c.execute(t.main_starts.insert(), rows)
    last = c.execute(sa.select(sa.func.max(t.main_starts.c.id))).scalar() or 0
    c.execute(t.main_starts.delete().where(t.main_starts.c.id <= last - most))


def _where(start: MainStart) -> str:
    """The nodes of a start that we can have affected, in short; of a long list the beginning."""
    text = "" if start.affected is Affected.NO else folded(start.on)
    return text if len(text) <= MOST_WHERE else f"{text[:MOST_WHERE]}..."


def main_starts_since(c: sa.Connection, time: float, limit: int) -> list[MainStart]:
    """See `ports.Store.main_starts`. A row that cannot be read is left out: it is one of many."""
    own = t.main_starts.c
    newest = sa.select(*(own[name] for name in MAIN_STARTS)).order_by(own.id.desc()).limit(limit).subquery()
    query = sa.select(newest).where(newest.c.time >= time)
    found = []
    for row in c.execute(query):
        values = dict(row._mapping)
        if values["affected"] in AFFECTED and isinstance(values["wait_s"], float):
            found.append(MainStart(**values | {"affected": Affected(values["affected"])}))
    return found[::-1]
