"""studies and their trials

Revision: 0009, after 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There were no studies before."""
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
