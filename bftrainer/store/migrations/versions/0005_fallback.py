"""plans say why the allocator that was asked for did not decide

Revision: 0005, after 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of earlier plans nothing is known: they count as decided as asked."""
    op.add_column("plans", sa.Column("fallback", sa.String(), nullable=False, server_default=""))
