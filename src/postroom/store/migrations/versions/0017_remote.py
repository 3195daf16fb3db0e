"""Where agents of other people are called."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Change identity."""
    if holds("agent_cards"):
        remote = sa.Column("remote", sa.Text(), server_default=sa.text("''"), nullable=False)
        op.add_column("agent_cards", remote)
