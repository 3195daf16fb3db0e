"""Each row of accounts says its organisation, as it does on PostgreSQL since there are two."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

TABLES = ("workers", "memberships", "api_keys", "agent_cards", "credentials")


def upgrade() -> None:
    """Change identity, where it is a file of one organisation."""
    known = sa.inspect(op.get_bind())
    if not known.has_table("agents"):
        return
    for table in TABLES:
        if any(column["name"] == "org" for column in known.get_columns(table)):
            continue
        op.add_column(table, sa.Column("org", sa.Text()))
        op.execute(
            f"UPDATE {table} SET org = coalesce("  # noqa: S608 (our own names)
            f"(SELECT org FROM agents WHERE agents.uid = {table}.uid),"
            " (SELECT min(org) FROM agents), '')"
        )
        with op.batch_alter_table(table) as changed:
            changed.alter_column("org", existing_type=sa.Text(), nullable=False)
