"""starts of main jobs say on which nodes

Revision: 0010, after 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty for earlier starts."""
    op.add_column("main_starts", sa.Column("where", sa.String(), nullable=False, server_default=""))
