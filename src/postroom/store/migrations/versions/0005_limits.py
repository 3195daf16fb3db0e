"""When a worker was started by a person, and the limit that it was ended for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column(
        "workers", sa.Column("begun_at", sa.Float(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column(
        "workers", sa.Column("exceeded", sa.Text(), server_default=sa.text("''"), nullable=False)
    )
