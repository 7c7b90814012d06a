"""what was measured of trainers, with its windows

Revision: 0002, after 0001
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A mean speed per size and mean costs become one window each."""
    rows = sa.table("trainers", sa.column("id", sa.Integer), sa.column("engine", sa.JSON))
    connection = op.get_bind()
    for id_, engine in connection.execute(sa.select(rows.c.id, rows.c.engine)).all():
        part = dict(engine)
        speeds, costs = part.pop("measured"), part.pop("measured_costs")
        up, down = (costs["up"], costs["down"]) if costs else ({}, {})
        part["observed"] = {
            "speeds": [[None, n, _once(rate)] for n, rate in speeds],
            "up_stall_s": _once(up.get("stall_s")),
            "up_init_s": _once(up.get("init_s")),
            "down_stall_s": _once(down.get("stall_s")),
        }
        connection.execute(sa.update(rows).where(rows.c.id == id_).values(engine=part))


def _once(value: float | None) -> dict[str, Any]:
    return {"count": 0, "recent": []} if value is None else {"count": 1, "recent": [value]}
