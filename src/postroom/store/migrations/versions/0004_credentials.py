"""Which user keys of the bus are out, and until when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "credentials",
        sa.Column("user_key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("user_key", name=op.f("pk_credentials")),
    )
    op.create_index("ix_credentials_uid", "credentials", ["uid"])
