"""What proves that a message is as it was stored, and which messages are kept no more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Add both, where the messages are."""
    if not holds("messages"):
        return
    empty = sa.text("''")
    op.add_column("messages", sa.Column("signature", sa.Text, nullable=False, server_default=empty))
    op.create_table(
        "given_up",
        sa.Column("sender", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("stored_at", sa.Float, nullable=False),
        sa.Column("given_up_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("sender", "id", name="pk_given_up"),
    )
    op.create_index("ix_given_up_given_up_at", "given_up", ["given_up_at"])
