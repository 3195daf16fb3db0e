"""The sessions that people have open in their own terminals."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Make their table, where the agents are."""
    if not holds("agents"):
        return
    op.create_table(
        "sessions",
        sa.Column(
            "uid", sa.Text, sa.ForeignKey("agents.uid", name="fk_sessions_uid"), nullable=False
        ),
        sa.Column(
            "owner", sa.Text, sa.ForeignKey("agents.uid", name="fk_sessions_owner"), nullable=False
        ),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("client", "key", "folder", "project", "version", "state")
        ),
        sa.Column("state_at", sa.Float, nullable=False),
        sa.Column("heard_at", sa.Float, nullable=False),
        sa.Column("org", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("uid", name="pk_sessions"),
    )
    op.create_index(
        "ix_sessions_org_owner_client_key",
        "sessions",
        ["org", "owner", "client", "key"],
        unique=True,
    )
