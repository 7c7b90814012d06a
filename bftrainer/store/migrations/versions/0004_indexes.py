"""trainers are found by name, user and end without reading the whole table

Revision: 0004, after 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Only indexes are added."""
    op.create_index("trainers_by_end", "trainers", ["ended_at", "status"])
    op.create_index("trainers_by_user", "trainers", ["user", "ended_at", "status"])
    op.create_index("trainers_by_name", "trainers", ["name", "user"])
