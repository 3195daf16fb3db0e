"""Where a worker's template was read, and what a person said beside it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column(
        "workers", sa.Column("origin", sa.Text(), server_default=sa.text("'{}'"), nullable=False)
    )
