"""trainers have the last warnings of their scripts

Revision: 0007, after 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of earlier trainers none is known."""
    op.add_column("trainers", sa.Column("warned", sa.JSON(), nullable=True))
