"""What people allow one worker to do without asking them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Change identity."""
    if holds("workers"):
        rules = sa.Column("rules", sa.Text(), server_default=sa.text("'[]'"), nullable=False)
        op.add_column("workers", rules)
