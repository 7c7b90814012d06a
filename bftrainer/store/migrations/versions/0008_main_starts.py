"""how long main jobs waited, and whether nodes of ours were in their way

Revision: 0008, after 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing is known of what main jobs waited before."""
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
