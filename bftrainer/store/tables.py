"""The tables. Domain objects are never rows: `rows.py` translates."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    text,
)

metadata = MetaData()

trainers = Table(
    "trainers",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("user", String, nullable=False, server_default=""),
    Column("name", String, nullable=False),
    Column("spec", JSON, nullable=False),
    Column("status", String, nullable=False),
    Column("reason", String, nullable=False, default=""),
    Column("submitted_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("samples", Integer, nullable=False, default=0),
    Column("step", Integer, nullable=False, default=0),
    Column("epoch", Integer, nullable=False, default=0),
    Column("rate", Float),
    Column("metrics", JSON, nullable=False),
    Column("engine", JSON, nullable=False),  # generation, nodes, members, ...: see rows.py
    Column("of", Integer),  # the samples of the whole training, as the script says; NULL: it does not
    Column("warned", JSON),  # the last warnings of the script, and the step that is saved; NULL: neither
    sqlite_autoincrement=True,
)
Index(
    "unfinished_names",
    trainers.c.user,
    trainers.c.name,
    unique=True,
    sqlite_where=text("ended_at IS NULL"),
)
Index("trainers_by_end", trainers.c.ended_at)
Index("trainers_by_user", trainers.c.user, trainers.c.ended_at)
Index("trainers_by_name", trainers.c.name, trainers.c.user)

# counting a hundred thousand rows of `trainers` would take longer than an answer may
ended = Table(
    "ended",
    metadata,
    Column("user", String, primary_key=True),
    Column("status", String, primary_key=True),
    Column("count", Integer, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("time", Float, nullable=False),
    Column("kind", String, nullable=False),
    Column("trainer", Integer, index=True),
    Column("data", JSON, nullable=False),
    Column("pool_size", Integer, nullable=False),
)

plans = Table(
    "plans",
    metadata,
    Column("event", Integer, ForeignKey("events.id"), primary_key=True),
    Column("allocator", String, nullable=False),
    Column("status", String, nullable=False),
    Column("proven", Boolean, nullable=False),
    Column("objective", Float, nullable=False),
    Column("bound", Float),  # NULL: none is known
    Column("note", String, nullable=False),
    Column("fallback", String, nullable=False, server_default=""),  # why not the allocator that was asked for
    Column("solve_s", Float, nullable=False),
    Column("allocation", JSON, nullable=False),
)

actions = Table(
    "actions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("event", Integer, ForeignKey("events.id"), nullable=False, index=True),
    Column("kind", String, nullable=False),
    Column("trainer", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("data", JSON, nullable=False),
    Column("performed_at", Float),  # NULL: decided, but not known to have been carried out
)

pauses = Table(
    "pauses",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("time", Float, nullable=False),
    Column("trainer", Integer, nullable=False, index=True),
    Column("generation", Integer, nullable=False),
    Column("node", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("size", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("pause_s", Float, nullable=False),
    Column("lost_steps", Integer, nullable=False),
)

reports = Table(
    "reports",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("time", Float, nullable=False),
    Column("trainer", Integer, nullable=False, index=True),
    Column("generation", Integer, nullable=False),
    Column("size", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("rate", Float),
    Column("metrics", JSON, nullable=False),
)

main_starts = Table(
    "main_starts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("time", Float, nullable=False),
    Column("job", String, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("cores", Integer, nullable=False),
    Column("wait_s", Float, nullable=False),
    Column("queued_s", Float),
    Column("affected", String, nullable=False),
    Column("given", Integer, nullable=False),
    Column("seen_s", Float),
    Column("vacate_s", Float),
    Column("requeued", Integer, nullable=False),
    Column("where", String, nullable=False, server_default=""),  # its nodes, in short; of a long list a part
)

studies = Table(
    "studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("user", String, nullable=False),
    Column("name", String, nullable=False),
    Column("text", String, nullable=False),
    Column("file", String, nullable=False),
    Column("base", String, nullable=False),
    Column("status", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("submitted_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("brief", JSON, nullable=False),
)
Index("studies_by_end", studies.c.ended_at)
Index("studies_by_name", studies.c.name, studies.c.user)

trials = Table(
    "trials",
    metadata,
    Column("study", Integer, ForeignKey("studies.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("data", JSON, nullable=False),
)

memory = Table(
    "memory",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", String, nullable=False),
)
