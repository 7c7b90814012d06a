"""names are unique for each user

Revision: 0003, after 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Whose a trainer is stood in its spec only."""
    op.drop_index("unfinished_names", table_name="trainers")
    op.add_column("trainers", sa.Column("user", sa.String(), nullable=False, server_default=""))
    op.create_index(
        "unfinished_names",
        "trainers",
        ["user", "name"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
    )
    rows = sa.table("trainers", sa.column("id"), sa.column("user"), sa.column("spec", sa.JSON))
    connection = op.get_bind()
    for id_, spec in connection.execute(sa.select(rows.c.id, rows.c.spec)).all():
        connection.execute(sa.update(rows).where(rows.c.id == id_).values(user=spec.get("user", "")))
