"""trainers say how many samples their whole training has, where their script does

Revision: 0006, after 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of earlier trainers it is not known, until their scripts report again."""
    op.add_column("trainers", sa.Column("of", sa.Integer(), nullable=True))
