"""trainers are found by name, user and end without reading the whole table, and counted as they end

Revision: 0004, after 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Those that have ended so far are counted once."""
    op.create_index("trainers_by_end", "trainers", ["ended_at"])
    op.create_index("trainers_by_user", "trainers", ["user", "ended_at"])
    op.create_index("trainers_by_name", "trainers", ["name", "user"])
    op.create_table(
        "ended",
        sa.Column("user", sa.String(), primary_key=True),
        sa.Column("status", sa.String(), primary_key=True),
        sa.Column("count", sa.Integer(), nullable=False),
    )
    op.execute(
        "INSERT INTO ended SELECT user, status, count(*) FROM trainers WHERE ended_at IS NOT NULL "
        "GROUP BY user, status"
    )
