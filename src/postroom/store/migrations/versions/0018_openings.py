"""What the operator has opened of the machine to the lesser keys of an organisation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from postroom.store.migrate import holds

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the table beside the accounts."""
    if not holds("workers"):
        return
    op.create_table(
        "openings",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("org", "kind", "name", "mode")),
        sa.Column("opened_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("org", "kind", "name", name="pk_openings"),
    )
