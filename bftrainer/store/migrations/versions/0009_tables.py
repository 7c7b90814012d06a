"""the tables of 0.9.0

Revision: 0009, the first that was released
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create all tables."""
    _trainers()
    _events()
    _studies()
    op.create_table(
        "memory",
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("value", sa.String(), nullable=False),
    )


def _trainers() -> None:
    """Trainers, and the counts of those that have ended."""
    op.create_table(
        "trainers",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("user", sa.String(), nullable=False, server_default=""),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float()),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("rate", sa.Float()),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("engine", sa.JSON(), nullable=False),
        sa.Column("of", sa.Integer()),
        sa.Column("warned", sa.JSON()),
        sqlite_autoincrement=True,
    )
    op.create_index("trainers_by_end", "trainers", ["ended_at"])
    op.create_index("trainers_by_name", "trainers", ["name", "user"])
    op.create_index("trainers_by_user", "trainers", ["user", "ended_at"])
    op.create_index(
        "unfinished_names",
        "trainers",
        ["user", "name"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "ended",
        sa.Column("user", sa.String(), primary_key=True),
        sa.Column("status", sa.String(), primary_key=True),
        sa.Column("count", sa.Integer(), nullable=False),
    )
    op.create_table(
        "pauses",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("trainer", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("pause_s", sa.Float(), nullable=False),
        sa.Column("lost_steps", sa.Integer(), nullable=False),
    )
    op.create_index("ix_pauses_trainer", "pauses", ["trainer"])
    op.create_table(
        "reports",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("trainer", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("rate", sa.Float()),
        sa.Column("metrics", sa.JSON(), nullable=False),
    )
    op.create_index("ix_reports_trainer", "reports", ["trainer"])


def _events() -> None:
    """Events with their plans and actions, and the starts of main jobs."""
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("trainer", sa.Integer()),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("pool_size", sa.Integer(), nullable=False),
    )
    op.create_index("ix_events_trainer", "events", ["trainer"])
    op.create_table(
        "plans",
        sa.Column("event", sa.Integer(), sa.ForeignKey("events.id"), primary_key=True),
        sa.Column("allocator", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("proven", sa.Boolean(), nullable=False),
        sa.Column("objective", sa.Float(), nullable=False),
        sa.Column("bound", sa.Float()),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("fallback", sa.String(), nullable=False, server_default=""),
        sa.Column("solve_s", sa.Float(), nullable=False),
        sa.Column("allocation", sa.JSON(), nullable=False),
    )
    op.create_table(
        "actions",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("event", sa.Integer(), sa.ForeignKey("events.id"), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("trainer", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("performed_at", sa.Float()),
    )
    op.create_index("ix_actions_event", "actions", ["event"])
    op.create_table(
        "main_starts",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("wait_s", sa.Float(), nullable=False),
        sa.Column("queued_s", sa.Float()),
        sa.Column("affected", sa.String(), nullable=False),
        sa.Column("given", sa.Integer(), nullable=False),
        sa.Column("seen_s", sa.Float()),
        sa.Column("vacate_s", sa.Float()),
        sa.Column("requeued", sa.Integer(), nullable=False),
    )


def _studies() -> None:
    """Studies with their trials."""
    op.create_table(
        "studies",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("file", sa.String(), nullable=False),
        sa.Column("base", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float()),
        sa.Column("brief", sa.JSON(), nullable=False),
    )
    op.create_index("studies_by_end", "studies", ["ended_at"])
    op.create_index("studies_by_name", "studies", ["name", "user"])
    op.create_table(
        "trials",
        sa.Column("study", sa.Integer(), sa.ForeignKey("studies.id"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("data", sa.JSON(), nullable=False),
    )
